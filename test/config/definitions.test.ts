import { describe, expect, expectTypeOf, it } from 'vitest';
import { z } from 'zod';
import { durationText, resolveConfig } from '../../src/config/index.ts';
import {
  defineConfig,
  defineDataType,
  defineSource,
  type Config,
  type DataTypeDefinition,
  type Duration,
  type SourceDefinition,
} from '../../src/index.ts';

const market = defineSource({ name: 'market', rateLimitPerMinute: 300, quotaBytes: '20GB' });
const quote = {
  name: 'quote',
  source: 'market',
  table: 'quote',
  key: 'symbol',
  timestamp: 'fetched_at',
  ttl: '15m',
} as const;

const read = (config: Config) => resolveConfig({ config, file: 'x.ts' });
const type = (changes: object) => read({ dataTypes: [{ ...quote, ...changes }] }).dataTypes![0]!;
const source = (changes: object) => read({ sources: [{ name: 'market', ...changes }] }).sources[0]!;

describe('a source', () => {
  it('is read in milliseconds and bytes, with its defaults', () => {
    expect(read({ sources: [market] }).sources).toEqual([
      {
        name: 'market',
        rateLimitPerMinute: 300,
        quotaBytes: 20e9,
        quotaWindow: 30 * 86_400_000,
        quotaBuffer: 0.95,
        viewedShare: 0.2,
        breaker: { failures: 5, window: 600_000, pause: 300_000 },
        oneAtATimeAKey: false,
        hosts: [],
        allowPrivateAddresses: false,
        headers: {},
        apiKeys: [],
        timeout: 10_000,
        maxWireBytes: 8e6,
        maxDecodedBytes: 32e6,
        maxRatio: 100,
        cacheTtl: 3_600_000,
        cacheEntries: 1_000,
      },
    ]);
  });

  it('that is handed to a data type need not be listed, and may be', () => {
    const dataTypes = [defineDataType({ ...quote, source: market })];
    for (const sources of [undefined, [], [market]]) {
      const resolved = read({ sources, dataTypes });
      expect(resolved.sources.map(({ name }) => name)).toEqual(['market']);
      expect(resolved.dataTypes![0]!.source).toBe('market');
    }
  });

  it.each([
    [1, 1],
    ['500', 500],
    ['1.5 kb', 1_500],
    ['20GB', 20e9],
    ['1TiB', 2 ** 40],
  ])('reads the size %s', (quotaBytes, expected) => {
    expect(source({ quotaBytes }).quotaBytes).toBe(expected);
  });

  it.each<[object, RegExp]>([
    [{ quotaBytes: '20 gigs' }, /quotaBytes \("market"\): expected a number of bytes, .*"20GB".*got "20 gigs"$/],
    [{ quotaBytes: 0 }, /expected more than 0 bytes, got 0$/],
    [{ quotaBytes: -1 }, /expected a number of bytes.*got -1$/],
    [{ quotaBytes: 1e300 }, /expected a number of bytes/],
    [{ quotaWindow: '1m' }, /quotaWindow \("market"\): expected a time from 1h to 366d, got "1m"$/],
    [{ quotaBuffer: 95 }, /quotaBuffer .*got 95$/],
    [{ quotaBuffer: 0 }, /quotaBuffer .*got 0$/],
    [{ rateLimitPerMinute: 0 }, /rateLimitPerMinute .*got 0$/],
    [{ rateLimitPerMinute: 1.5 }, /rateLimitPerMinute .*got 1.5$/],
    [{ rateLimitPerMinute: 100_001 }, /rateLimitPerMinute .*got 100001$/],
    [{ viewedShare: 1 }, /viewedShare .*got 1$/],
    [{ viewedShare: -0.1 }, /viewedShare .*got -0.1$/],
    [{ concurrency: 0 }, /concurrency .*got 0$/],
    [{ concurrency: 2.5 }, /concurrency .*got 2.5$/],
    [{ oneAtATimeAKey: 1 }, /oneAtATimeAKey .*expected boolean.*got 1$/],
    [{ enabled: 'yes' }, /enabled .*expected boolean.*got "yes"$/],
    [{ name: 'Market Data' }, /name .*expected a name of lower-case letters.*got "Market Data"$/],
    [{ name: undefined }, /^x\.ts: sources\[0\]\.name: .*got nothing$/],
    [
      { rateLimit: 5 },
      /sources\[0\]\.rateLimit \("market"\): there is no such option; did you mean "rateLimitPerMinute"\?$/,
    ],
    [{ quotabytes: 5 }, /quotabytes .*did you mean "quotaBytes"\?$/],
    [{ timeout: 0 }, /timeout .*expected a positive time.*got 0$/],
    [{ timeout: '1h' }, /timeout .*expected a time from 1ms to 5m, got "1h"$/],
    [{ maxWireBytes: 10 }, /maxWireBytes .*expected a size from 1KB to 1GB, got 10$/],
    [{ maxDecodedBytes: '2GB' }, /maxDecodedBytes .*expected a size from 1KB to 1GB/],
    [{ maxRatio: 0 }, /maxRatio .*got 0$/],
    [{ cacheTtl: -1 }, /cacheTtl .*expected a positive time.*got -1$/],
    [{ cacheEntries: 1.5 }, /cacheEntries .*got 1.5$/],
    [{ allowPrivateAddresses: 'no' }, /allowPrivateAddresses .*expected boolean.*got "no"$/],
    [{ authorize: 'Bearer' }, /authorize .*expected a function, got "Bearer"$/],
    [{ token: 'abc' }, /token .*expected a function/],
    [{ apiKeys: [{ env: 'A' }] }, /authorize .*expected a function that puts the API key into a request, got nothing$/],
  ])('is refused as %j', (changes, message) => {
    expect(() => source(changes)).toThrow(message);
  });

  it.each<[object, RegExp]>([
    [{ apiKeys: 'sk-secret' }, /apiKeys .*expected a list of \{ env: "NAME" \} or \{ file: "path" \}/],
    [
      { apiKeys: ['sk-secret'] },
      /apiKeys\[0\] .*expected \{ env: "NAME" \} or \{ file: "path" \}, never the key itself/,
    ],
    [{ apiKeys: [{ env: 'sk-secret' }] }, /apiKeys\[0\]/],
    [{ apiKeys: [{ env: 'A', file: 'sk-secret' }] }, /apiKeys\[0\]/],
    [{ apiKeys: [{ key: 'sk-secret' }] }, /apiKeys\[0\]/],
    [{ baseUrl: 'https://me:sk-secret@api.example.com' }, /baseUrl .*without a login, a query or an anchor/],
    [{ baseUrl: 'https://api.example.com/?key=sk-secret' }, /baseUrl .*without a login, a query/],
    [{ baseUrl: 'sk-secret' }, /baseUrl .*expected an address such as "https:\/\/api\.example\.com\/v1"/],
    [{ baseUrl: 'ftp://sk-secret' }, /baseUrl .*expected an address/],
    [{ hosts: ['https://sk-secret'] }, /hosts\[0\] .*expected a host such as "api\.example\.com"/],
    [{ hosts: ['sk-secret@a.example'] }, /hosts\[0\] .*expected a host/],
    [{ hosts: 'sk-secret' }, /hosts /],
    [{ headers: { authorization: 'sk-secret\n' } }, /headers\.authorization .*expected a text without line breaks/],
    [{ headers: { 'content-length': 'sk-secret' } }, /headers.*expected headers that pgfresh does not set itself/],
    [{ headers: ['sk-secret'] }, /headers /],
  ])('does not show what may be a secret, as in %j', (changes, message) => {
    expect(() => source(changes)).toThrow(message);
    expect(() => source(changes)).toThrow(/got a value that is not shown$/);
    expect(() => source(changes)).not.toThrow(/sk-secret/);
  });

  it('may say everything about its calls', () => {
    const calls = {
      baseUrl: 'https://api.example.com/v1',
      hosts: ['files.example.com', 'api.example.com:8443', '[2001:db8::1]:80'],
      allowPrivateAddresses: true,
      headers: { 'X-Plan': 'gold' },
      apiKeys: [{ env: 'MARKET_KEY' }, { file: 'secrets/market' }],
      authorize: () => ({ headers: {} }),
      token: () => Promise.resolve({ token: 'x' }),
      timeout: 5_000,
      maxWireBytes: 1e6,
      maxDecodedBytes: 2e6,
      maxRatio: 50,
      cacheTtl: 60_000,
      cacheEntries: 0,
    };
    expect(source(calls)).toMatchObject(calls);
  });
});

describe('a data type', () => {
  it('needs no more than this', () => {
    expect(type({})).toEqual({
      name: 'quote',
      source: 'market',
      table: 'quote',
      key: ['symbol'],
      timestamp: 'fetched_at',
      ttl: 900_000,
      dependsOn: [],
      estimatedBytes: 0,
      maxRetries: 3,
      maxRun: 300_000,
      visibility: 'shared',
      write: { mode: 'merge', maxDeletes: 0.25 },
      nulls: 'write',
      empty: { status: [204] },
    });
  });

  it('may say everything', () => {
    const row = z.object({ symbol: z.string() });
    const all = {
      fetcher: 'market.quote',
      table: 'app.quote',
      key: ['symbol', 'exchange'],
      ttlColumn: 'ttl_minutes',
      empty: { ttl: '1d' },
      staleness: 'app.is_old',
      schedule: { cron: '0 6 * * 1-5', zone: 'America/New_York' },
      keys: { table: 'symbols', column: 'symbol', active: 'listed' },
      normalise: 'upper',
      gate: 'exchange_open',
      gateOpens: 'exchange_opens',
      priority: { background: 500, uiThreshold: 1000 },
      dependsOn: ['profile'],
      estimatedBytes: '2KB',
      sourceTimestamp: 'timestamp',
      maxRetries: 0,
      maxRun: 1_000,
      visibility: 'rls',
      row,
    };
    expect(type(all)).toMatchObject({ ...all, empty: { status: [204], ttl: 86_400_000 }, estimatedBytes: 2_000 });
  });

  it.each([
    [/^[A-Z]{1,5}$/, '^[A-Z]{1,5}$'],
    [/^[a-z]+$/i, '(?i)^[a-z]+$'],
    ['^x', '^x'],
  ])('has the pattern %s for keys', (keyPattern, text) => {
    expect(type({ keyPattern }).keyPattern).toBe(text);
  });

  it.each<[string, object, RegExp]>([
    ['no ttl', { ttl: undefined }, /^x\.ts: dataTypes\[0\]\.ttl \("quote"\): expected a positive time.*got nothing$/],
    ['a ttl of nothing', { ttl: 0 }, /ttl .*expected a positive time.*got 0$/],
    ['a negative ttl', { ttl: -1 }, /ttl .*expected a positive time.*got -1$/],
    ['a ttl of words', { ttl: 'soon' }, /ttl .*got "soon"$/],
    ['a ttl of another type', { ttl: { minutes: 5 } }, /ttl .*expected a positive time.*got \{"minutes":5\}$/],
    ['a ttl of eleven years', { ttl: '4000d' }, /ttl .*expected a time from 1ms to 3660d, got "4000d"$/],
    ['a long run', { maxRun: '31d' }, /maxRun .*expected a time from 1ms to 30d/],
    [
      'a mistyped option',
      { tttl: '1m', ttl: undefined },
      /\.tttl \("quote"\): there is no such option; did you mean "ttl"\?$/,
    ],
    ['an option of an option', { schedule: { corn: '@daily' } }, /\.schedule\.corn .*did you mean "cron"\?$/],
    ['no table', { table: undefined }, /\.table .*got nothing$/],
    ['a table that is none', { table: 'quote; drop' }, /\.table .*expected a name of letters.*got "quote; drop"$/],
    ['a table with two dots', { table: 'a.b.c' }, /\.table /],
    ['a long column', { timestamp: 'x'.repeat(64) }, /\.timestamp .*at most 63/],
    ['no key', { key: [] }, /\.key .*got \[\]$/],
    ['a key twice', { key: ['a', 'a'] }, /\.key .*expected each column once, got \["a","a"\]$/],
    ['a key that is none', { key: ['a b'] }, /\.key.*expected/],
    ['a source of another type', { source: 5 }, /\.source .*expected a source or the name of one, got 5$/],
    ['a source without a name', { source: {} }, /\.source .*expected a source or the name of one/],
    ['two places for keys', { keys: { table: 'a', column: 'b' }, keyPattern: 'x' }, /\.keyPattern .*not both/],
    [
      'a schedule without keys',
      { schedule: { cron: '@daily' } },
      /\.keys .*over which the schedule walks, got nothing$/,
    ],
    ['six fields', { schedule: { cron: '0 0 6 * * *' } }, /\.schedule\.cron .*expected five fields/],
    ['@reboot', { schedule: { cron: '@reboot' } }, /\.schedule\.cron .*expected five fields/],
    [
      'a zone of nowhere',
      { schedule: { cron: '@daily', zone: 'Mars/Base' } },
      /\.schedule\.zone .*"America\/New_York"/,
    ],
    ['an empty zone', { schedule: { cron: '@daily', zone: '' } }, /\.schedule\.zone /],
    ['an offset for a zone', { schedule: { cron: '@daily', zone: '+02:00' } }, /\.schedule\.zone /],
    ['a time that opens no gate', { gateOpens: 'f' }, /\.gate .*expected a gate.*got nothing$/],
    ['half a priority', { priority: { background: 1 } }, /\.priority\.uiThreshold .*got nothing$/],
    ['a pattern with a flag', { keyPattern: /x/g }, /\.keyPattern .*no flag but i.*got \/x\/g$/],
    ['retries without end', { maxRetries: Infinity }, /\.maxRetries /],
    ['a visibility that is none', { visibility: 'public' }, /\.visibility .*"shared".*got "public"$/],
    ['a case that is none', { normalise: 'UPPER' }, /\.normalise .*"upper".*got "UPPER"$/],
    ['a row that is no schema', { row: { symbol: 'text' } }, /\.row .*standardschema\.dev/],
    [
      'itself to depend on',
      { dependsOn: ['quote'] },
      /\.dependsOn: expected no data type to need itself, got quote → quote$/,
    ],
    ['too much to depend on', { dependsOn: Array.from({ length: 17 }, (_, n) => `t${n}`) }, /\.dependsOn /],
    [
      'a source with a bad limit',
      { source: { name: 'm', quotaBytes: 'x' } },
      /dataTypes\[0\]\.source\.quotaBytes \("m"\): /,
    ],
  ])('is refused with %s', (_name, changes, message) => {
    expect(() => type(changes)).toThrow(expect.objectContaining({ code: 'PGF_CONFIG_INVALID' }) as Error);
    expect(() => type(changes)).toThrow(message);
  });
});

describe('all definitions together', () => {
  it.each<[string, object, RegExp]>([
    [
      'one data type twice',
      { dataTypes: [quote, quote] },
      /^x\.ts: dataTypes\[1\]\.name: expected each name once, and "quote" is that of dataTypes\[0\] too$/,
    ],
    ['one source twice', { sources: [market, { name: 'market' }] }, /sources\[1\]\.name: expected each name once/],
    [
      'another source of the same name',
      { sources: [{ name: 'market' }], dataTypes: [{ ...quote, source: market }] },
      /expected each name once, and "market"/,
    ],
    [
      'a circle',
      {
        dataTypes: [
          { ...quote, name: 'a', dependsOn: ['b'] },
          { ...quote, name: 'b', dependsOn: ['c'] },
          { ...quote, name: 'c', dependsOn: ['b'] },
        ],
      },
      /expected no data type to need itself, got b → c → b$/,
    ],
    ['no list', { dataTypes: { quote } }, /dataTypes: expected a list, got \{"quote":/],
    ['no list of sources', { sources: 'market' }, /sources: expected a list, got "market"$/],
    [
      'an entry that is nothing',
      { dataTypes: [null] },
      /dataTypes\[0\]: expected an object with name, source, .*got null$/,
    ],
    ['a mistyped list', { datatypes: [] }, /datatypes: there is no such setting; did you mean "dataTypes"\?$/],
  ])('are refused with %s', (_name, config, message) => {
    expect(() => read(config as Config)).toThrow(message);
  });

  it('may need what only the database knows', () => {
    expect(type({ source: 'elsewhere', dependsOn: ['profile'] }).dependsOn).toEqual(['profile']);
  });

  it('say nothing about data types when they are left out', () => {
    expect(read({}).dataTypes).toBeUndefined();
    expect(read({ dataTypes: [] }).dataTypes).toEqual([]);
  });
});

it('gives the editor the types', () => {
  expectTypeOf(defineSource).parameter(0).toEqualTypeOf<SourceDefinition>();
  expectTypeOf(defineDataType).returns.toExtend<NonNullable<Config['dataTypes']>[number]>();
  expectTypeOf<DataTypeDefinition>().toHaveProperty('ttl').toEqualTypeOf<Duration>();
  expectTypeOf<{
    name: string;
    source: string;
    table: string;
    key: string;
    timestamp: string;
  }>().not.toExtend<DataTypeDefinition>();
  expectTypeOf(z.object({ symbol: z.string() })).toExtend<NonNullable<DataTypeDefinition['row']>>();
  expectTypeOf(defineConfig).returns.toEqualTypeOf<Config>();
});

it.each([
  [250, '250ms'],
  [1_500, '1500ms'],
  [90_000, '90s'],
  [900_000, '15m'],
  [86_400_000, '1d'],
  [129_600_000, '36h'],
])('%i ms are written as %s', (ms, text) => {
  expect(durationText(ms)).toBe(text);
});
