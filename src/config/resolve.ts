import type { z } from 'zod';
import { PgfreshError } from '../errors/index.ts';
import { readDev, type Dev } from './dev.ts';
import { definitionNames, readDefinitions, type ConfigDefinitions, type Definitions } from './definitions.ts';
import { readGateway, type GatewayDefinition, type GatewaySettings } from './gateway.ts';
import { expectation, hintFor, invalid } from './invalid.ts';
import { misspeltVariables, type MisspeltVariable } from './misspelt.ts';
import { settingNames, settings, type ConfigSettings, type SettingName, type Settings } from './settings.ts';

/** What `pgfresh.config.ts` may say. */
export interface Config extends ConfigSettings, ConfigDefinitions {
  /** Who may connect to the gateway, and what they may view. Default: no user may. */
  readonly gateway?: GatewayDefinition | undefined;
  /** Starts what `pgfresh dev` needs besides pgfresh; nothing else calls it. */
  readonly dev?: Dev | undefined;
}

/** Where a value came from, strongest first. */
export type Origin = 'flag' | 'environment' | 'file' | 'default';

export interface ResolvedConfig extends Definitions {
  readonly settings: Settings;
  readonly origins: Readonly<Record<SettingName, Origin>>;
  /** The configuration file that was read, if there was one. */
  readonly file: string | undefined;
  readonly gateway: GatewaySettings;
  readonly dev: Dev | undefined;
  readonly misspelt: readonly MisspeltVariable[];
}

export interface ConfigInputs {
  readonly flags?: Readonly<Partial<Record<SettingName, unknown>>>;
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly config?: Config;
  readonly file?: string | undefined;
}

/** Takes each setting from the strongest place that has it, and checks it there. */
export function resolveConfig(inputs: ConfigInputs): ResolvedConfig {
  const { flags = {}, env = {}, config = {}, file } = inputs;
  const source = file ?? 'the configuration';
  refuseUnknownKeys(config, source);
  const values: Record<string, unknown> = {};
  const origins = {} as Record<SettingName, Origin>;
  for (const name of settingNames) {
    const setting = settings[name];
    const places: readonly { origin: Origin; where: string; value: unknown }[] = [
      { origin: 'flag', where: setting.flag.split(' ', 1)[0]!, value: flags[name] },
      // An empty variable is how a shell or a container says "not set".
      { origin: 'environment', where: setting.env, value: env[setting.env] || undefined },
      { origin: 'file', where: source, value: config[name] },
      { origin: 'default', where: 'the defaults', value: setting.default },
    ];
    const place = places.find(({ value }) => value !== undefined) ?? places.at(-1)!;
    values[name] = check(name, place.value, place.where);
    origins[name] = place.origin;
  }
  return {
    settings: values as Settings,
    origins,
    file,
    gateway: readGateway(config.gateway, source),
    dev: readDev(config.dev, source),
    misspelt: misspeltVariables(env),
    ...readDefinitions(config, source),
  };
}

function check(name: SettingName, value: unknown, where: string): unknown {
  const schema: z.ZodType = settings[name].schema;
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0]!;
  const path = [name, ...issue.path].join('.');
  const shown = 'secret' in settings[name] ? 'a value that is not shown' : JSON.stringify(value);
  throw invalid(where, path, `${expectation(issue)}, got ${shown}`);
}

function refuseUnknownKeys(config: Config, where: string): void {
  if (typeof config !== 'object' || config === null || Array.isArray(config)) {
    throw new PgfreshError('PGF_CONFIG_INVALID', {
      file: where,
      problem: `expected the default export to be an object (use defineConfig), got ${JSON.stringify(config) ?? typeof config}`,
    });
  }
  const known = [...settingNames, ...definitionNames, 'gateway', 'dev'];
  for (const key of Object.keys(config)) {
    if (!known.some((name) => name === key)) {
      throw invalid(where, key, `there is no such setting; ${hintFor(key, known)}`);
    }
  }
}
