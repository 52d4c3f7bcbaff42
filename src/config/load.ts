import { existsSync } from 'node:fs';
import { glob } from 'node:fs/promises';
import { registerHooks } from 'node:module';
import { extname, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { DataTypeDefinition } from './data-type.ts';
import { resolveConfig, type Config, type ConfigInputs, type ResolvedConfig } from './resolve.ts';

const fileNames = ['pgfresh.config.ts', 'pgfresh.config.js', 'pgfresh.config.mjs'];

// What Node.js says of a module in a folder that "npm init -y" made: its package.json has the type commonjs.
const readAsCommonJs = /^(Cannot use import statement outside a module|Unexpected token 'export')$/;

// "pgfresh" in the file means the one that reads it: a clone is no installed package, and may not be built.
const ourselves = {
  url: new URL(`../index${extname(import.meta.filename)}`, import.meta.url).href,
  shortCircuit: true,
};

export interface LoadOptions extends Pick<ConfigInputs, 'flags' | 'env'> {
  readonly folder: string;
  /** The file that the user named; without it, the folder's own is taken if it has one. */
  readonly configFile?: string | undefined;
}

/** Reads the configuration file, if there is one, and resolves every setting. */
export async function loadConfig({ folder, configFile, flags = {}, env = {} }: LoadOptions): Promise<ResolvedConfig> {
  const file = configFile === undefined ? findConfigFile(folder) : resolve(folder, configFile);
  const config = file === undefined ? {} : await importFile(file);
  return resolveConfig({ flags, env, config, file });
}

/** Demands an option whose name says what is wrong with dependsOn, for the compiler to show; nothing if all is well. */
type Needed<Type> = {
  readonly [
    Missing in Exclude<
      NeedsOf<Type>,
      NameOf<Type>
    > as `dependsOn names "${Missing}", which is no data type here; write { name: "${Missing}" } if only the database has it`
  ]: never;
};
type NeedsOf<Type> = Type extends { readonly '~needs'?: infer Needs extends string | undefined }
  ? Extract<Needs, string>
  : never;
type NameOf<Type> = Type extends { readonly name: infer Name } ? Name : never;

/** Does nothing but give the editor the types. */
export function defineConfig<const Type extends DataTypeDefinition = DataTypeDefinition>(
  config: Config & { readonly dataTypes?: readonly Type[] | undefined } & Needed<NoInfer<Type>>,
): Config {
  return config;
}

/** The configuration that a folder has, if it has one. */
export function findConfigFile(folder: string): string | undefined {
  return fileNames.map((name) => resolve(folder, name)).find((path) => existsSync(path));
}

/** The configurations of the folders below this one, two levels down, as one would name them here. */
export async function configFilesBelow(folder: string): Promise<string[]> {
  const patterns = fileNames.flatMap((name) => [`*/${name}`, `*/*/${name}`]);
  const isForeign = (path: string): boolean => /(^|[\\/])(node_modules|\.[^\\/]+)$/.test(path);
  const found: string[] = [];
  for await (const path of glob(patterns, { cwd: folder, exclude: isForeign })) found.push(path);
  return found.toSorted();
}

async function importFile(file: string): Promise<Config> {
  if (!existsSync(file)) throw new PgfreshError('PGF_CONFIG_MISSING', { file });
  let module: { default?: Config };
  const hooks = registerHooks({
    resolve: (name, context, next) => (name === 'pgfresh' ? ourselves : next(name, context)),
  });
  try {
    module = (await import(pathToFileURL(file).href)) as { default?: Config };
  } catch (error) {
    const problem = problemOf(error);
    const step = readAsCommonJs.test(problem) ? 'Run "npm pkg set type=module" in its folder' : 'Correct the file';
    throw new PgfreshError('PGF_CONFIG_THROWS', { file, problem, step }, { cause: error });
  } finally {
    hooks.deregister();
  }
  if (module.default === undefined) {
    throw new PgfreshError('PGF_CONFIG_INVALID', {
      file,
      problem: 'expected a default export (export default defineConfig({ … })), got none',
    });
  }
  return module.default;
}
