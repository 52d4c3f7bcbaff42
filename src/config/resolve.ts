import type { z } from 'zod';
import { PgfreshError } from '../errors/index.ts';
import { nearMiss } from './near-miss.ts';
import { settingNames, settings, type Config, type SettingName, type Settings } from './settings.ts';

/** Where a value came from, strongest first. */
export type Origin = 'flag' | 'environment' | 'file' | 'default';

export interface ResolvedConfig {
  readonly settings: Settings;
  readonly origins: Readonly<Record<SettingName, Origin>>;
  /** The configuration file that was read, if there was one. */
  readonly file: string | undefined;
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
  refuseUnknownKeys(config, file ?? 'the configuration');
  const values: Record<string, unknown> = {};
  const origins = {} as Record<SettingName, Origin>;
  for (const name of settingNames) {
    const setting = settings[name];
    const places: readonly { origin: Origin; where: string; value: unknown }[] = [
      { origin: 'flag', where: setting.flag.split(' ', 1)[0]!, value: flags[name] },
      // An empty variable is how a shell or a container says "not set".
      { origin: 'environment', where: setting.env, value: env[setting.env] || undefined },
      { origin: 'file', where: file ?? 'the configuration', value: config[name] },
      { origin: 'default', where: 'the defaults', value: setting.default },
    ];
    const place = places.find(({ value }) => value !== undefined) ?? places.at(-1)!;
    values[name] = check(name, place.value, place.where);
    origins[name] = place.origin;
  }
  return { settings: values as Settings, origins, file };
}

function check(name: SettingName, value: unknown, where: string): unknown {
  const schema: z.ZodType = settings[name].schema;
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0]!;
  const path = [name, ...issue.path].join('.');
  const shown = 'secret' in settings[name] ? 'a value that is not shown' : JSON.stringify(value);
  throw new PgfreshError('PGF_CONFIG_INVALID', {
    file: where,
    problem: `${path}: ${expectation(issue)}, got ${shown}`,
  });
}

// A union reports only that nothing matched; the reason of its last branch is the one that people can use.
function expectation(issue: z.core.$ZodIssue): string {
  const last = issue.code === 'invalid_union' ? issue.errors.at(-1)?.[0] : undefined;
  if (last) return expectation(last);
  return issue.message.charAt(0).toLowerCase() + issue.message.slice(1);
}

function refuseUnknownKeys(config: Config, where: string): void {
  if (typeof config !== 'object' || config === null || Array.isArray(config)) {
    throw new PgfreshError('PGF_CONFIG_INVALID', {
      file: where,
      problem: `expected the default export to be an object (use defineConfig), got ${JSON.stringify(config) ?? typeof config}`,
    });
  }
  for (const key of Object.keys(config)) {
    if (key in settings) continue;
    const near = nearMiss(key, settingNames);
    const hint = near ? `did you mean "${near}"?` : `expected one of ${settingNames.join(', ')}`;
    throw new PgfreshError('PGF_CONFIG_INVALID', { file: where, problem: `${key}: there is no such setting; ${hint}` });
  }
}
