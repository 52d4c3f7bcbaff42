import { beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { resolveConfig } from '../../src/config/index.ts';
import { Events } from '../../src/events/index.ts';
import { explainPair, sweepJob } from '../../src/planner/index.ts';
import { examineFetchers } from '../../src/refresh/index.ts';
import { PlannerScene } from './scene.ts';

let scene: PlannerScene;
beforeEach(async () => {
  scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.type('typo', { columns: { fetcher: `'qoute'` } });
});

const typeId = async (name: string) =>
  (
    await scene.db.query<{ id: number }>('select type_id as id from pgfresh.data_type_registry where data_type = $1', [
      name,
    ])
  )[0]!.id;
const serve = async (types: readonly string[], fetchers: readonly string[], only?: readonly string[]) =>
  scene.db.query(
    'select pgfresh_engine.serve_types(id, $1::int[], $2::text[], $3::text[]) from pgfresh_engine.process',
    [await Promise.all(types.map(typeId)), fetchers, only],
  );
const explained = async (type: string) => {
  await scene.db.query(`select pgfresh.queue_refresh_if_not_exists('A', $1::text)`, [type]);
  const { reason, words } = await explainPair(scene.db, type, 'A');
  return [reason, words];
};
const sweep = () => sweepJob({ db: scene.db, events: new Events() })({ signal: new AbortController().signal });

const common = { source: 'market', key: 'key', timestamp: 'fetched_at', ttl: '1m' } as const;
const config = resolveConfig({
  config: {
    dataTypes: [
      {
        ...common,
        name: 'quote',
        table: 'quote',
        schema: z.object({ key: z.string() }),
        request: (url: string) => ({ url }),
        rows: (answer: unknown) => answer as object,
      },
    ],
    sources: [{ name: 'market' }],
  },
  file: 'x.ts',
});

describe('truth 5: a fetcher that no worker has', () => {
  it('is the reason in explain, with the near miss', async () => {
    await serve(['quote'], ['quote', 'profile']);
    expect(await explained('typo')).toEqual([
      'no_worker',
      'No worker that runs has the fetcher qoute; did you mean quote?',
    ]);
    expect((await explained('quote'))[0]).toBe('queued');
  });

  it('is no reason while a worker has not said what it serves, or an SQL client claims by itself', async () => {
    expect((await explained('typo'))[0]).toBe('queued');
    await serve(['quote'], ['quote']);
    await scene.db.query(
      `insert into pgfresh_engine.worker_name (name, has_lease, last_seen_at) values ('perl', false, pgfresh.clock())`,
    );
    expect((await explained('typo'))[0]).toBe('queued');
  });

  it('is told apart from a worker that is limited to other data types, and from one that refuses the type', async () => {
    await serve(['quote'], ['quote', 'qoute'], ['quote']);
    expect(await explained('typo')).toEqual([
      'no_worker',
      'The workers that run are limited to other data types than typo: start one with "pgfresh run --roles worker --types typo".',
    ]);
    await serve(['quote'], ['quote', 'qoute']);
    // It has not read the registry yet.
    expect((await explained('typo'))[0]).toBe('queued');
    await scene.db.query(
      `select pgfresh_engine.warn('type_unwritable', 'typo', 'typo: no unique constraint', 'Add one.')`,
    );
    expect(await explained('typo')).toEqual([
      'no_worker',
      'The workers that run do not serve typo: no unique constraint.',
    ]);
  });

  it('is the reason when no worker runs at all, and when its lease has ended', async () => {
    await serve(['quote', 'typo'], ['quote', 'qoute']);
    expect((await explained('quote'))[0]).toBe('queued');
    await scene.db.query(`update pgfresh_engine.process set lease_until = pgfresh.clock()`);
    expect(await explained('quote')).toEqual([
      'no_worker',
      'No worker is running: start one with "pgfresh run --roles worker".',
    ]);
  });

  it('is warned of by the sweep, if somebody looks', async () => {
    await serve(['quote'], ['quote']);
    await sweep();
    expect(await scene.warnings()).toEqual([]);
    await scene.look('typo', ['A']);
    await scene.look('quote', ['A']);
    await scene.tick();
    await sweep();
    expect(await scene.warnings()).toMatchObject([{ code: 'no_worker', subject: 'typo' }]);
    await scene.db.query(
      `delete from pgfresh.warnings; update pgfresh_engine.process set lease_until = '-infinity' where kind = 'worker'`,
    );
    await sweep();
    expect(await scene.warnings()).toMatchObject([{ code: 'no_worker', subject: 'all data types', count: 1 }]);
  });

  it('is a finding of check: fatal with a near miss or while workers run', async () => {
    const findings = async () =>
      (await examineFetchers(scene.db, config)).filter(({ name }) => name === 'data type typo');
    await serve(['quote'], ['quote']);
    expect(await findings()).toEqual([
      {
        name: 'data type typo',
        state: 'fatal',
        code: 'PGF_FETCHER_MISSING',
        detail:
          'no worker can fetch it: no data type here with request, schema and rows has the fetcher "qoute"; did you mean "quote"?',
        next: 'Correct the fetcher of the data type, or start a worker whose configuration has it.',
      },
    ]);
    await scene.db.query(`update pgfresh.data_type_registry set fetcher = 'elsewhere' where data_type = 'typo'`);
    expect(await findings()).toMatchObject([{ state: 'fatal' }]);
    await scene.db.query(`update pgfresh_engine.process set lease_until = '-infinity' where kind = 'worker'`);
    expect(await findings()).toMatchObject([{ state: 'warning' }]);
  });

  it('costs the heartbeat nothing, and goes with the worker', async () => {
    await serve(['quote'], ['quote']);
    const [row] = await scene.db.query<{ xmin: string }>('select xmin::text from pgfresh_engine.worker_service');
    await scene.db.query(`update pgfresh_engine.process set lease_until = pgfresh.clock() + interval '9 seconds'`);
    await scene.db.query(`select pgfresh_engine.heartbeat_process(id, '{}') from pgfresh_engine.process`);
    await serve(['quote'], ['quote']);
    expect(await scene.db.query('select xmin::text from pgfresh_engine.worker_service')).toEqual([row]);
    await scene.db.query('select pgfresh_engine.retire_process(id) from pgfresh_engine.process');
    expect(await scene.db.query('select from pgfresh_engine.worker_service')).toEqual([]);
  });
});
