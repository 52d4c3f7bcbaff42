import { beforeEach, describe, expect, it } from 'vitest';
import { readOverview, type Overview } from '../../src/watch/index.ts';
import { PlannerScene } from '../planner/scene.ts';

let scene: PlannerScene;
beforeEach(async () => {
  scene = await PlannerScene.open();
});

const overview = async (): Promise<Overview> => (await readOverview(scene.db))!;
const typeNamed = async (name: string) => (await overview()).types.find(({ data_type: type }) => type === name)!;

/** Somebody looks, and the planner has seen it. */
async function view(type: string, keys: readonly string[], viewers = 1): Promise<void> {
  await scene.look(type, keys, viewers);
  await scene.tick();
}

async function refresh(outcome?: string): Promise<void> {
  const jobs = await scene.queue.claim();
  const ends = jobs.map(({ id, attempt, request }) => ({
    id,
    attempt,
    request,
    bytes: 100,
    ...(outcome ? { outcome } : {}),
  }));
  if (ends.length > 0) await scene.queue.queue.complete(scene.db, ends);
}

describe('overview', () => {
  it('is empty where there is nothing', async () => {
    expect(await overview()).toMatchObject({
      freshness: { pairs: 0, viewers: 0, share: null, viewer_share: null, age_p50: null },
      types: [],
      sources: [{ source: 'market', state: 'ok', calls_limit: null, calls_minute: null, quota_cap: null, ready: 0 }],
      stopped: null,
      workers: 1,
    });
  });

  it('says what is missing, queued, running, fresh and stale, and how old that is for its viewers', async () => {
    await scene.type('price');
    await view('price', ['A']);
    await view('price', ['B', 'C'], 3);
    expect(await typeNamed('price')).toMatchObject({
      pairs: 3,
      viewers: 7,
      missing: 3,
      share: 0,
      ready: 3,
      running: 0,
    });
    const [first, ...others] = await scene.queue.claim();
    expect(await typeNamed('price')).toMatchObject({ ready: 0, running: 3, refreshed: 0 });
    expect((await overview()).sources).toMatchObject([{ ready: 0, running: 3 }]);
    // The one with one viewer is refreshed first.
    const [alone] = [first!, ...others].filter(({ key }) => key === 'A');
    const rest = [first!, ...others].filter(({ key }) => key !== 'A');
    await scene.queue.complete([alone!], 100);
    await scene.clock.advance('50 seconds');
    await scene.queue.complete(rest, 100);
    await scene.clock.advance('5 seconds');
    const expected = { fresh: 3, stale: 0, share: 1, viewer_share: 1, age_p50: 5, age_p95: 55, outcomes: { fresh: 3 } };
    expect(await typeNamed('price')).toMatchObject(expected);
    expect((await overview()).freshness).toMatchObject({ pairs: 3, refreshed: 3, age_p50: 5, age_p95: 55 });
    expect((await overview()).sources).toMatchObject([{ calls_hour: 3, bytes_hour: 300, running: 0 }]);
    await scene.clock.advance('10 seconds');
    expect(await typeNamed('price')).toMatchObject({
      fresh: 2,
      stale: 1,
      share: 0.6667,
      viewer_share: 0.8571,
      refreshed: 2,
    });
  });

  it('says what stale pairs wait for, and calls missing what waits for another', async () => {
    await scene.db.query(
      `create function public.closed(key text, data_type text) returns boolean language sql as 'select false'`,
    );
    await scene.type('gated', { columns: { gate_function: `'closed'` } });
    await view('gated', ['A']);
    await scene.rows('gated', ['A']);
    await refresh();
    await scene.clock.advance('2 minutes');
    await scene.tick();
    expect(await typeNamed('gated')).toMatchObject({ stale: 1, share: 0, viewer_share: 0, waits_for: { gate: 1 } });
    await scene.type('parent');
    await scene.type('child', { columns: { depends_on: `'{parent}'` } });
    await view('child', ['A']);
    expect(await typeNamed('child')).toMatchObject({ missing: 1, waits_for: { dependency: 1 } });
    // Somebody else keeps this one.
    await scene.type('foreign');
    await scene.rows('foreign', ['A']);
    await view('foreign', ['A']);
    expect(await typeNamed('foreign')).toMatchObject({ fresh: 1, missing: 0, share: 1 });
  });

  it('calls stale what its source keeps from being refreshed', async () => {
    await scene.db.query(
      `create function public.open(key text, data_type text) returns boolean language sql as 'select true'`,
    );
    await scene.type('price', { columns: { gate_function: `'open'` } });
    await view('price', ['A']);
    await scene.rows('price', ['A']);
    await refresh();
    await scene.db.query(`select pgfresh.pause_source('market', p_reason => 'maintenance')`);
    await scene.clock.advance('2 minutes');
    await scene.tick();
    expect(await typeNamed('price')).toMatchObject({ stale: 1, viewer_share: 0, waits_for: { paused: 1 } });
    expect((await overview()).sources).toMatchObject([
      { state: 'paused', paused_until: 'infinity', pause_reason: 'maintenance' },
    ]);
    await scene.db.query(`insert into pgfresh.spending_stop (reason) values ('enough')`);
    expect(await overview()).toMatchObject({ stopped: { reason: 'enough' } });
  });

  it('counts the empty answer as it should be for its own time, and shows what is tried again', async () => {
    await scene.type('price', { columns: { empty_ttl: `'1 hour'` } });
    await view('price', ['A']);
    await refresh('empty');
    await scene.clock.advance('30 minutes');
    expect(await typeNamed('price')).toMatchObject({ empty: 1, share: 1, outcomes: { empty: 1 } });
    await view('price', ['B']);
    const [job] = await scene.queue.claim();
    await scene.db.query(
      `select pgfresh_engine.fail_jobs(jsonb_build_array(jsonb_build_object('id', $1::bigint, 'attempt', $2::int,
        'outcome', 'timeout', 'error', 'no answer in 10 s')))`,
      [job!.id, job!.attempt],
    );
    expect(await typeNamed('price')).toMatchObject({ waiting: 1, missing: 1, error: 'no answer in 10 s' });
  });

  it('truth 15: does not call good what viewers see of a row that the source says is not there', async () => {
    await scene.type('price', { columns: { empty_ttl: `'1 hour'` } });
    await view('price', ['A', 'B']);
    await scene.rows('price', ['A']);
    await refresh('empty');
    await scene.tick();
    await scene.sweep();
    expect(await typeNamed('price')).toMatchObject({ empty: 2, kept: 1, share: 0.5, viewer_share: 0.5 });
    await scene.clock.advance('10 minutes');
    expect(await typeNamed('price')).toMatchObject({ empty: 2, kept: 1, share: 0.5, age_p50: 600 });
    expect((await overview()).freshness).toMatchObject({ empty: 2, kept: 1, viewer_share: 0.5 });
    await scene.db.query('delete from public.price');
    await scene.sweep();
    expect(await typeNamed('price')).toMatchObject({ empty: 2, kept: 0, share: 1, age_p50: null });
  });

  it('counts calls in the last minute against the limit', async () => {
    await scene.queue.source('paid', { rate: 300, quotaBytes: 1_000_000 });
    await scene.type('price', { source: 'paid' });
    await view('price', ['A', 'B', 'C']);
    await refresh();
    const paid = async () => (await overview()).sources.find(({ source }) => source === 'paid');
    expect(await paid()).toMatchObject({ calls_minute: 3, calls_limit: 300, quota_cap: 950_000, quota_used: 300 });
    await scene.clock.advance('59 seconds');
    expect(await paid()).toMatchObject({ calls_minute: 3 });
    await scene.clock.advance('2 seconds');
    expect(await paid()).toMatchObject({ calls_minute: 0 });
  });

  it('reads no more when there is more of what nobody looks at', async () => {
    await scene.type('price');
    await view('price', ['A', 'B']);
    await refresh();
    const buffers = async (): Promise<number> => {
      const reads: number[] = [];
      // The least: a connection looks into the catalogue the first time, and when others have changed something.
      for (let time = 0; time < 4; time++) {
        const [row] = await scene.db.query<{ 'QUERY PLAN': [{ Plan: Record<string, number> }] }>(
          'explain (analyze, buffers, format json) select pgfresh_engine.overview()',
        );
        const { Plan: plan } = row!['QUERY PLAN'][0];
        reads.push(plan['Shared Hit Blocks']! + plan['Shared Read Blocks']!);
      }
      return Math.min(...reads);
    };
    const before = await buffers();
    await scene.db.query(
      `insert into pgfresh_engine.pairs (type_id, key) select type_id, 'K' || n from pgfresh.data_type_registry, generate_series(1, 20000) as n`,
    );
    await scene.db.query(
      `insert into pgfresh_engine.history_succeeded (id, ended_at, created_at, bytes, type_id, source_id, priority, attempt, retries, lost, status, outcome, key)
       select n, pgfresh.clock(), pgfresh.clock(), 1, 1, 1, 1, 1, 0, 0, 'succeeded', 'fresh', 'K' from generate_series(1, 20000) as n`,
    );
    expect(await buffers()).toBeLessThan(before + 50);
  });
});
