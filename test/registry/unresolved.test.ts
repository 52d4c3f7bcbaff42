import { beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { Config } from '../../src/config/index.ts';
import { migrate, readSqlFiles, type Database } from '../../src/database/index.ts';
import { Events, type EventOf } from '../../src/events/index.ts';
import { defineDataType } from '../../src/index.ts';
import { readCatalog } from '../../src/refresh/index.ts';
import { examineRegistry, isEmpty, listTypes, syncRegistry } from '../../src/registry/index.ts';
import { readOverview } from '../../src/watch/index.ts';
import { standInWorker } from '../harness/stand-in-worker.ts';
import { market, profile, quote, scene, wanted } from './config-scene.ts';

const fetching = {
  schema: z.object({ symbol: z.string() }),
  request: (key: string) => ({ url: `https://market.test/${key}` }),
  rows: (answer: { symbol: string }) => answer,
};
const gone = defineDataType({ ...quote, ...fetching });
const whole = defineDataType({ ...profile, ...fetching });
const dependent = defineDataType({ ...profile, ...fetching, name: 'summary', dependsOn: ['quote'] });
const config = { sources: [market], dataTypes: [gone, whole, dependent] } satisfies Config;

let database: Database;
beforeAll(async () => {
  ({ database } = await scene());
  await syncRegistry(database, wanted(config), new Events());
  await standInWorker(database);
  await database.query('drop table public.quote cascade');
});

const sync = async (changed: Config, skipRefused?: boolean) => {
  const events = new Events();
  const warnings: EventOf<'warning'>[] = [];
  events.on('warning', (event) => warnings.push(event));
  const diff = await syncRegistry(database, wanted(changed), events, skipRefused ? { skipRefused } : {});
  return { diff, warnings };
};
const value = async <T>(expression: string) =>
  (await database.query<{ value: T }>(`select ${expression} as value`))[0]!.value;

describe('truth 25: a table that was dropped costs only its own data type', () => {
  it('in the catalogue of a worker', async () => {
    const { sources, dataTypes = [] } = wanted(config);
    const { types, problems } = await readCatalog(database, { sources, dataTypes });
    expect([...types.values()].map(({ name }) => name)).toEqual(['profile', 'summary']);
    expect(problems).toMatchObject([
      { type: 'quote', problem: 'there is no table quote', next: 'Create it, or correct the data type.' },
    ]);
  });

  it('in check and in type list', async () => {
    const findings = await examineRegistry(database, wanted(config));
    expect(findings.filter(({ state }) => state === 'fatal')).toMatchObject([
      { name: 'data type quote', code: 'PGF_REGISTRY_INVALID' },
    ]);
    const listed = (await listTypes(database)).map(({ data_type, problem }) => [data_type, problem?.problem]);
    expect(listed).toEqual([
      ['profile', undefined],
      ['quote', 'table_name: there is no table public.quote'],
      ['summary', undefined],
    ]);
  });

  it('when the functions of a new version are applied', async () => {
    await database.query(`update pgfresh.migrations set hash = 'older' where kind = 'functions'`);
    const { applied } = await migrate(database, { files: await readSqlFiles(), events: new Events() });
    expect(applied.length).toBeGreaterThan(10);
  });

  it('in a sync at the start of a process: others are written, and it is warned of', async () => {
    const slower = { ...whole, ttl: '8d' } as const;
    const { diff, warnings } = await sync({ dataTypes: [{ ...gone, ttl: '20m' }, slower, dependent] }, true);
    expect(diff.types.changed.map(({ name }) => name)).toEqual(['profile']);
    expect(warnings).toMatchObject([{ code: 'type_refused', subject: 'quote' }]);
    expect(warnings[0]!.message).toBe(
      'The data type "quote" was left out: table_name: there is no table public.quote. Create it, or correct table_name.',
    );
    const ttls = await database.query(
      `select data_type, extract(epoch from ttl)::int / 60 as minutes from pgfresh.data_type_registry order by 1`,
    );
    expect(ttls).toMatchObject([{ minutes: 8 * 24 * 60 }, { minutes: 15 }, {}]);
    await sync(config, true);
  });

  it('but a sync by hand changes nothing, and neither does a start that could register nothing', async () => {
    const changed = { ...gone, ttl: '20m' } as const;
    await expect(sync({ dataTypes: [changed, whole, dependent] })).rejects.toMatchObject({ code: 'PGF_TYPE_REFUSED' });
    const { diff, warnings } = await sync({ dataTypes: [{ ...whole, table: 'nowhere' }] }, true);
    expect(isEmpty(diff)).toBe(true);
    expect(warnings).toMatchObject([{ code: 'type_refused', subject: 'profile' }]);
    expect(await value('(select count(*)::int from pgfresh.data_type_registry)')).toBe(3);
  });

  it('in what is planned and read for viewers', async () => {
    const answers = await database.query('select code from pgfresh_engine.want_pairs($1, $2, true) order by place', [
      ['quote', 'profile'],
      ['AAPL', 'AAPL'],
    ]);
    expect(answers).toMatchObject([{}, { code: null }]);
    expect(await value(`array(select data_type from pgfresh_engine.open_jobs where key = 'AAPL')`)).toEqual([
      'profile',
    ]);
    expect(
      await value(
        '(pgfresh_engine.read_pairs((select type_id from pgfresh.data_type_registry where data_type = $$profile$$), $${AAPL}$$)).rows',
      ),
    ).toBe('[]');
    expect(await value(`pgfresh_engine.plan_due_pairs(100)`)).toBeTruthy();
    expect(await readOverview(database)).toMatchObject({ types: [{}, {}, {}] });
  });

  it('in what is explained', async () => {
    // Viewed and missing, so that what it needs is asked for.
    await database.query(`select pgfresh_engine.want_pairs('{summary}', '{MSFT}', true)`);
    await database.query('delete from pgfresh_engine.job where key = $1', ['MSFT']);
    await database.query('update pgfresh_engine.pairs set job_id = null where key = $1', ['MSFT']);
    expect(await value(`pgfresh.explain_pair('summary', 'MSFT') ->> 'reason'`)).toBe('due');
    const reasons = await database.query(
      `select w, pgfresh.explain_pair(w, 'AAPL') ->> 'reason' as reason from unnest('{profile,quote,summary}'::text[]) as w`,
    );
    expect(reasons).toMatchObject([{ w: 'profile' }, { w: 'quote', reason: 'unresolved' }, { w: 'summary' }]);
  });
});

describe('truth 25: a table of keys that was dropped costs only its own data type', () => {
  it('when pairs of it are asked for together with others', async () => {
    await database.query('create table public.tickers (symbol text primary key)');
    const keyed = defineDataType({ ...whole, name: 'keyed', keys: { table: 'tickers', column: 'symbol' } });
    await sync({ dataTypes: [...config.dataTypes, keyed] }, true);
    await database.query('drop table public.tickers cascade');
    await database.query(`select pgfresh_engine.want_pairs('{keyed,profile}', '{AAPL,GOOG}', true)`);
    const pairs = await database.query(`select key from pgfresh_engine.pairs where key = 'GOOG'`);
    expect(pairs).toHaveLength(1);
    expect(await value(`pgfresh.explain_pair('keyed', 'AAPL') ->> 'reason'`)).toBe('unresolved');
  });
});
