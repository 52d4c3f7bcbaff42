import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  duration,
  loadConfig,
  nearMiss,
  resolveConfig,
  settingNames,
  settings,
  type Config,
} from '../../src/config/index.ts';
import type { PgfreshError } from '../../src/errors/index.ts';

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'pgfresh-config-'));
});
afterAll(() => rm(folder, { recursive: true }));

let files = 0;
async function load(text: string) {
  const file = join(folder, `config-${++files}.ts`);
  await writeFile(file, text);
  return loadConfig({ folder, configFile: file });
}

describe('precedence', () => {
  const env = { PGFRESH_PORT: '5001', PGFRESH_HOST: 'localhost' };
  const config: Config = { port: 5002, host: '::1', poolSize: 3 };

  it('is flag, environment, file, default', () => {
    const resolved = resolveConfig({ flags: { port: '5000' }, env, config, file: 'f.ts' });
    expect(resolved.settings).toMatchObject({ port: 5000, host: 'localhost', poolSize: 3, dataDir: '.pgfresh' });
    expect(resolved.origins).toMatchObject({ port: 'flag', host: 'environment', poolSize: 'file', dataDir: 'default' });
  });

  it('takes an empty variable as not set', () => {
    expect(resolveConfig({ env: { PGFRESH_PORT: '', DATABASE_URL: '' } }).settings).toMatchObject({
      port: undefined,
      databaseUrl: undefined,
    });
  });
});

it('has a flag, a variable and a default that passes its own check for every setting', () => {
  const resolved = resolveConfig({});
  expect(Object.keys(resolved.settings)).toEqual(settingNames);
  expect(new Set(settingNames.map((name) => settings[name].env)).size).toBe(settingNames.length);
  expect(resolved.settings.statementTimeout).toBe(30_000);
});

describe('a bad value', () => {
  it.each<[string, () => unknown, RegExp]>([
    [
      'a port of words',
      () => resolveConfig({ env: { PGFRESH_PORT: 'http' } }),
      /^PGFRESH_PORT: port: expected a whole number from 0 to 65535, got "http"$/,
    ],
    ['a port too large', () => resolveConfig({ flags: { port: '70000' } }), /^--port: port: .*65535.*got "70000"$/],
    ['a negative pool', () => resolveConfig({ config: { poolSize: -1 }, file: 'x.ts' }), /^x\.ts: poolSize: .*got -1$/],
    [
      'an unknown level',
      () => resolveConfig({ env: { PGFRESH_LOG_LEVEL: 'loud' } }),
      /^PGFRESH_LOG_LEVEL: logLevel: .*"debug".*got "loud"$/,
    ],
    [
      'a short token, which is not shown',
      () => resolveConfig({ env: { PGFRESH_TOKEN: 'hunter2' } }),
      /^PGFRESH_TOKEN: token: expected 16 characters or more, got a value that is not shown$/,
    ],
    [
      'a time of nothing',
      () => resolveConfig({ config: { statementTimeout: '0s' } }),
      /statementTimeout: expected a positive time .* got "0s"$/,
    ],
    [
      'runs 11: a time that no timer can have',
      () => resolveConfig({ env: { PGFRESH_STATEMENT_TIMEOUT: '30d' } }),
      /^PGFRESH_STATEMENT_TIMEOUT: statementTimeout: expected a time from 10ms to 1d, got "30d"$/,
    ],
    ['a number for a text', () => resolveConfig({ config: { host: 1 as never } }), /host: .*expected string.*got 1$/],
    [
      'a typo',
      () => resolveConfig({ config: { datadir: 'x' } as never, file: 'x.ts' }),
      /^x\.ts: datadir: there is no such setting; did you mean "dataDir"\?$/,
    ],
    [
      'a word from nowhere',
      () => resolveConfig({ config: { zzzzzzzz: 1 } as never }),
      /zzzzzzzz: there is no such setting; expected one of databaseUrl, /,
    ],
    ['an array', () => resolveConfig({ config: [] as never }), /expected the default export to be an object/],
    ['null', () => resolveConfig({ config: null as never }), /expected the default export to be an object/],
  ])('%s is named with place, expectation and value', (_name, act, message) => {
    expect(act).toThrow(
      expect.objectContaining({
        code: 'PGF_CONFIG_INVALID',
        message: expect.stringMatching(message) as string,
      }) as PgfreshError,
    );
  });
});

describe('the file', () => {
  it('is TypeScript, loaded natively', async () => {
    const resolved = await load(`const port: number = 4567; export default { port } satisfies object;`);
    expect(resolved.settings.port).toBe(4567);
    expect(resolved.file).toMatch(/config-\d+\.ts$/);
  });

  it('is found by its name, and may be absent', async () => {
    expect((await loadConfig({ folder })).file).toBeUndefined();
    await writeFile(join(folder, 'pgfresh.config.ts'), 'export default { poolSize: 4 }');
    expect((await loadConfig({ folder })).settings.poolSize).toBe(4);
    await rm(join(folder, 'pgfresh.config.ts'));
  });

  it.each([
    ['throws', `throw new Error('no key')`, 'PGF_CONFIG_THROWS', /config-\d+\.ts could not be loaded: no key$/],
    ['throws a text', `throw 'plain'`, 'PGF_CONFIG_THROWS', /: plain$/],
    ['does not parse', `export default {`, 'PGF_CONFIG_THROWS', /could not be loaded/],
    ['exports nothing', `export const config = {}`, 'PGF_CONFIG_INVALID', /expected a default export/],
    ['exports a number', `export default 5`, 'PGF_CONFIG_INVALID', /expected the default export to be an object/],
  ])('that %s is a coded error', async (_name, text, code, message) => {
    await expect(load(text)).rejects.toMatchObject({ code, message: expect.stringMatching(message) as string });
  });

  it('that was named but is not there is a coded error', async () => {
    await expect(loadConfig({ folder, configFile: 'nope.ts' })).rejects.toMatchObject({ code: 'PGF_CONFIG_MISSING' });
  });
});

it.each([
  ['250ms', 250],
  ['1.5s', 1_500],
  ['15m', 900_000],
  ['6h', 21_600_000],
  ['1d', 86_400_000],
  [' 40 ', 40],
  [1_000, 1_000],
])('reads the time %s', (text, ms) => {
  expect(duration.parse(text)).toBe(ms);
});

it.each(['', '-1s', 's', '1 week', '1e3', Number.POSITIVE_INFINITY, 0, -5, null, {}])(
  'refuses the time %o',
  (value) => {
    expect(duration.safeParse(value).success).toBe(false);
  },
);

it('suggests what is near and nothing that is not', () => {
  expect(nearMiss('prot', ['host', 'port', 'token'])).toBe('port');
  expect(nearMiss('DATADIR', ['dataDir'])).toBe('dataDir');
  expect(nearMiss('rateLimit', ['name', 'rateLimitPerMinute'])).toBe('rateLimitPerMinute');
  expect(nearMiss('banana', ['host', 'port'])).toBeUndefined();
});

it('truth 22: names a variable of the environment that is nearly a setting, and no other', () => {
  const misspelt = (env: Record<string, string>) => resolveConfig({ env }).misspelt.map(({ message }) => message);
  expect(misspelt({ PGFRESH_PROT: '1', PGFRESH_LOGLEVEL: 'warn', pgfresh_token: 'x' })).toEqual([
    'The environment variable PGFRESH_PROT is no setting of pgfresh; did you mean PGFRESH_PORT?',
    'The environment variable PGFRESH_LOGLEVEL is no setting of pgfresh; did you mean PGFRESH_LOG_LEVEL?',
    'The environment variable pgfresh_token is no setting of pgfresh; did you mean PGFRESH_TOKEN?',
  ]);
  expect(misspelt({ PGFRESH_PORT: '1', PGFRESH_MARKET_KEY: 'k', PGFRESH_PROT: '', PORT: '1' })).toEqual([]);
});
