import { expect, test } from 'vitest';
import { explainPair, type Activity, type DataState, type Reason } from '../../src/planner/index.ts';
import { Events } from '../../src/events/index.ts';
import { countedStates, Metrics, readOverview } from '../../src/watch/index.ts';
import { PlannerScene } from '../planner/scene.ts';

interface Harm {
  readonly name: string;
  readonly does: (scene: PlannerScene) => Promise<unknown>;
  /** What is shown after one tick, or else after one sweep. */
  readonly within: 'tick' | 'sweep';
  readonly state: DataState;
  readonly activity: Activity;
  readonly reason: Reason | null;
}

const later = async (scene: PlannerScene, interval: string): Promise<void> => {
  await scene.clock.advance(interval);
  await scene.db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
};
const failAll = async (scene: PlannerScene, times: number): Promise<void> => {
  for (const { id } of await scene.queue.claim({ limit: times }))
    await scene.db.query(`select pgfresh.fail_queue_job($1::bigint, 'HTTP 401', null, true)`, [id]);
};

/** The pair (quote, A) is viewed, has a TTL of an hour, and was fetched a moment ago. */
const harms: readonly Harm[] = [
  {
    name: 'its row is deleted',
    does: (scene) => scene.db.query('delete from quote'),
    within: 'sweep',
    state: 'missing',
    activity: 'waiting',
    reason: 'queued',
  },
  {
    name: 'its row is set back in time',
    does: (scene) => scene.db.query(`update quote set fetched_at = fetched_at - interval '2 days'`),
    within: 'sweep',
    state: 'stale',
    activity: 'waiting',
    reason: 'queued',
  },
  {
    name: 'its row is deleted while its source is paused',
    does: async (scene) => {
      await scene.db.query(`select pgfresh.pause_source('market', p_reason => 'a test')`);
      await scene.db.query('delete from quote');
    },
    within: 'sweep',
    state: 'missing',
    activity: 'waiting',
    reason: 'paused',
  },
  {
    name: 'the cache of its provider is stuck',
    does: async (scene) => {
      await later(scene, '1 hour');
      await scene.tick();
      await scene.finish('older_source');
    },
    within: 'tick',
    state: 'older_source',
    activity: 'waiting',
    reason: 'retry',
  },
  {
    name: 'its provider refuses the key',
    does: async (scene) => {
      await later(scene, '1 hour');
      await scene.tick();
      await failAll(scene, 1);
    },
    within: 'tick',
    state: 'stale',
    activity: 'waiting',
    reason: 'refused',
  },
  {
    name: 'its provider says that there is nothing',
    does: async (scene) => {
      await scene.queue.value(`pgfresh.queue_refresh_if_not_exists('A', 'quote')`);
      await scene.finish('empty');
    },
    within: 'tick',
    state: 'empty',
    activity: 'idle',
    reason: null,
  },
  {
    name: 'there is no worker for its type',
    does: async (scene) => {
      await later(scene, '1 hour');
      await scene.db.query(`update pgfresh_engine.process set lease_until = '-infinity' where kind = 'worker'`);
    },
    within: 'tick',
    state: 'stale',
    activity: 'waiting',
    reason: 'no_worker',
  },
  {
    name: 'its table is gone',
    does: (scene) => scene.db.query('drop table quote'),
    within: 'sweep',
    state: 'missing',
    activity: 'waiting',
    reason: 'unresolved',
  },
];

test.for(harms)(
  'contract 23: what is shown is true everywhere, within one $within: $name',
  async ({ does, within, state, activity, reason }) => {
    const scene = await PlannerScene.open();
    await scene.type('quote', { ttl: '1 hour' });
    await scene.look('quote', ['A']);
    await scene.tick();
    await scene.rows('quote', ['A']);
    await scene.finish('fresh');
    await scene.tick();
    const healthy = { overview: 'fresh', metrics: 'fresh', explain: 'fresh idle -', read: 'fresh idle -' };
    expect(await shown(scene)).toEqual(healthy);
    await does(scene);
    await scene[within]();
    const words = `${state} ${activity} ${reason ?? '-'}`;
    const read = reason === 'unresolved' ? 'unreadable' : words;
    expect(await shown(scene)).toEqual({ overview: state, metrics: state, explain: words, read });
  },
);

/** How (quote, A) is shown by the overview, as a metric, by explain and to viewers. */
async function shown(scene: PlannerScene): Promise<Record<'overview' | 'metrics' | 'explain' | 'read', string>> {
  const { freshness } = (await readOverview(scene.db))!;
  const metrics = new Metrics(new Events());
  metrics.showPairs(() => readOverview(scene.db));
  const measured = (await metrics.text()).matchAll(/^pgfresh_viewed_pairs\{.*state="(\w+)".*\} 1$/gm);
  const { state, activity, reason } = await explainPair(scene.db, 'quote', 'A');
  const read = `select state, activity, reason from pgfresh_engine.read_pairs((select type_id from pgfresh.data_type_registry), '{A}')`;
  const [row] = await scene.db.query<{ state: string; activity: string; reason: string | null }>(read).catch(() => []);
  return {
    overview: countedStates.filter((name) => freshness[name] > 0).join(),
    metrics: [...measured].map(([, name]) => name).join(),
    explain: `${state} ${activity} ${reason ?? '-'}`,
    read: row ? `${row.state} ${row.activity} ${row.reason ?? '-'}` : 'unreadable',
  };
}
