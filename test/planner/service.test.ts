import { expect, test } from 'vitest';
import { Events, type PgfreshEvent } from '../../src/events/index.ts';
import { Planner, type PlannerOptions, plannerStatement } from '../../src/planner/index.ts';
import { Metrics, recordWarnings } from '../../src/watch/index.ts';
import { openSession } from '../harness/session.ts';
import { PlannerScene } from './scene.ts';

interface Watched {
  readonly planner: Planner;
  readonly events: Events;
  readonly seen: PgfreshEvent[];
}

function watched(scene: PlannerScene, tickMs = 60_000): Watched {
  const events = new Events();
  const seen: PgfreshEvent[] = [];
  events.subscribe((event) => seen.push(event));
  return { planner: new Planner({ db: scene.db, events, tickMs }), events, seen };
}

test('a planner that runs queues what is looked at, and says what it did', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A', 'B']);
  const { planner, seen } = watched(scene, 10);
  await planner.start();
  await expect.poll(() => scene.open()).toEqual(['quote A 1', 'quote B 1']);
  await planner.stop();
  const counts = seen.flatMap((event) => (event.type === 'planner.ran' ? [event.counts] : []));
  expect(counts.reduce((sum, { queued = 0 }) => sum + queued, 0)).toBe(2);
  expect(await scene.queue.value('(select count(*) from pgfresh_engine.duty)')).toBe(0);
});

test('of two planners one works; the other takes over when the first has stopped or its lease has ended', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  const [first, second] = [watched(scene), watched(scene)];
  await first.planner.tick();
  await scene.look('quote', ['A']);
  await second.planner.tick();
  expect(await scene.open()).toEqual([]);
  expect(second.seen).toEqual([]);
  await scene.clock.advance('10 seconds');
  await second.planner.tick();
  expect(await scene.open()).toEqual(['quote A 1']);
  await first.planner.tick();
  expect(first.seen).toHaveLength(1);
});

test('a database that is away for a while is told of, and ends nothing', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A']);
  const { planner, seen } = watched(scene);
  await scene.db.query('alter function pgfresh_engine.plan_due_pairs(int, text[]) rename to away');
  await planner.tick();
  expect(seen).toMatchObject([
    { type: 'planner.failed', kind: 'tick', problem: expect.stringContaining('plan_due_pairs') as string },
  ]);
  await scene.db.query('alter function pgfresh_engine.away(int, text[]) rename to plan_due_pairs');
  await planner.tick();
  expect(await scene.open()).toEqual(['quote A 1']);
});

test('a tick waits for its turn while a chunk of a sweep is at work', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A']);
  const sweeping = await openSession(scene.queue.url);
  await sweeping.query('begin');
  await sweeping.query('select pg_advisory_xact_lock(7041, 1)');
  const db: PlannerOptions['db'] = {
    query: (statement, values) => scene.db.query(statement, values),
    transact: async (...work) => {
      const answer = await scene.db.transact(...work);
      if ((answer as { skipped?: string }).skipped === 'locked') await sweeping.query('commit');
      return answer;
    },
  };
  await new Planner({ db, events: new Events(), tickMs: 60_000 }).tick();
  expect(await scene.open()).toEqual(['quote A 1']);
});

test('a warning of an SQL function becomes one event and a metric; one of the process becomes a row', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A']);
  await scene.db.query('drop table quote');
  const { planner, events, seen } = watched(scene);
  const metrics = new Metrics(events);
  const stop = recordWarnings(events, scene.db);
  await planner.tick();
  await planner.tick();
  expect(seen.filter(({ type }) => type === 'warning')).toMatchObject([
    {
      code: 'type_unresolved',
      subject: 'quote',
      message: expect.stringContaining('there is no table') as string,
      recorded: true,
    },
  ]);
  expect(await metrics.text()).toMatch(/pgfresh_warnings_total\{code="type_unresolved"\} 1/);
  expect(await metrics.text()).toMatch(/pgfresh_planner_pairs_total\{kind="tick",result="skipped_unresolved"\} 1/);

  const pooler = { type: 'warning', code: 'transaction_pooler', message: 'a pooler', next: 'Go around it.' } as const;
  events.emit(pooler);
  events.emit(pooler);
  await expect
    .poll(() => scene.warnings())
    .toEqual([
      { code: 'transaction_pooler', subject: '', count: 2 },
      { code: 'type_unresolved', subject: 'quote', count: 1 },
    ]);
  stop();
  await scene.clock.advance('31 days');
  expect(await scene.queue.value('pgfresh_engine.clear_old_warnings()')).toBe(2);
});

test('a warning that this process has told is not told again from its row, and no subject is said twice', async () => {
  const scene = await PlannerScene.open();
  const { planner, events, seen } = watched(scene, 10);
  const stop = recordWarnings(events, scene.db);
  await planner.start();
  const own = { code: 'type_unwritable', subject: 'weather', message: 'weather: no column', next: 'Add it.' } as const;
  events.emit({ type: 'warning', ...own });
  await expect.poll(() => scene.warnings()).toHaveLength(1);
  await scene.clock.advance('1 second');
  await scene.db.query(`select pgfresh_engine.warn('no_worker', 'quote', 'quote: nobody fetches it', 'Start one.')`);
  const told = () => seen.flatMap((event) => (event.type === 'warning' ? [event.message] : []));
  await expect.poll(told).toContain('quote: nobody fetches it');
  for (const message of ['quote timed out twice', 'The source quote is left alone', 'no answer']) {
    await scene.clock.advance('1 second');
    await scene.db.query(`select pgfresh_engine.warn('type_quarantined', 'quote', $1::text, 'Wait.')`, [message]);
    await expect.poll(() => told().at(-1)).toContain(message);
  }
  await planner.stop();
  stop();
  expect(told()).toEqual([
    'weather: no column',
    'quote: nobody fetches it',
    'quote timed out twice',
    'The source quote is left alone',
    'quote: no answer',
  ]);
});

test('the planner does not wait for the disk, and nobody else on its connection is served like that', async () => {
  const scene = await PlannerScene.open();
  const session = await openSession(scene.queue.url);
  const waits = async () =>
    (await session.query<{ it: string }>(`select current_setting('synchronous_commit') as it`))[0]!.it;
  await session.query('set synchronous_commit = on');
  await session.query('begin');
  await session.query(plannerStatement('pgfresh_engine.plan_due_pairs'));
  expect(await waits()).toBe('off');
  await session.query('commit');
  expect(await waits()).toBe('on');
});
