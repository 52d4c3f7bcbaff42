import { describe, expect, it } from 'vitest';
import { migrate, readSqlFiles } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { freezeClock } from '../harness/clock.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { QueueScene } from '../queue/scene.ts';

const scene = await QueueScene.open();
const clock = await freezeClock(scene.db);
const kinds = ['worker', 'scheduler', 'gateway'] as const;

const register = (kind: string) => scene.value<number>(`pgfresh_engine.register_process($1::text, 'one')`, [kind]);
const beat = (id: number) => scene.value<{ alive: boolean }>('pgfresh_engine.heartbeat_process($1::bigint)', [id]);
const isThere = (id: number) =>
  scene.value<boolean>('exists (select from pgfresh_engine.process where id = $1::bigint)', [id]);

describe.each([
  ['worker', 12, { alive: true, stranded: [] }],
  ['scheduler', 12, { alive: true, dead: 0, cancel: [], stranded: [] }],
  ['gateway', 30, { alive: true }],
] as const)('a %s', (kind, seconds, answer) => {
  it(`has a lease of ${seconds} s that each heartbeat renews, and is gone when it retires`, async () => {
    const id = await register(kind);
    for (let renewals = 0; renewals < 3; renewals++) {
      await clock.advance(`${seconds - 1} seconds`);
      expect(await beat(id)).toEqual(answer);
      expect(
        await scene.value(
          `(select extract(epoch from lease_until - pgfresh.clock())::int from pgfresh_engine.process where id = $1::bigint)`,
          [id],
        ),
      ).toBe(seconds);
    }
    expect(await scene.value('pgfresh_engine.retire_process($1::bigint)', [id])).toBe(0);
    expect(await isThere(id)).toBe(false);
    expect(await beat(id)).toEqual({ alive: false });
  });
});

it.each([
  ['worker', false],
  ['gateway', false],
  ['scheduler', true],
])('a %s whose lease has ended comes back: %s', async (kind, comesBack) => {
  const id = await register(kind);
  await clock.advance('31 seconds');
  expect(await beat(id)).toMatchObject({ alive: comesBack });
  await scene.db.query(`update pgfresh_engine.process set lease_until = '-infinity' where id = $1::bigint`, [id]);
  expect(await beat(id)).toEqual({ alive: false });
});

it('a number is of one process or SQL client only', async () => {
  await scene.queue.enqueueMany(scene.db, 'quote', ['A']);
  const ids = [await register('worker'), await register('scheduler'), await register('gateway')];
  await scene.db.query(`select pgfresh.get_queue_batch(1, p_worker => 'by SQL')`);
  const client = await scene.value<number>(`(select id from pgfresh_engine.worker_name where name = 'by SQL')`);
  expect(new Set([...ids, client]).size).toBe(4);
  expect(
    await scene.value('(select array_agg(name) from pgfresh_engine.worker_name where id = any ($1::bigint[]))', [ids]),
  ).toEqual(['one']);
});

describe('a login speaks only for its own kind of process', () => {
  const roles = { worker: 'pgfresh_worker', scheduler: 'pgfresh_planner', gateway: 'pgfresh_gateway' };
  it.each(kinds)('%s', async (own) => {
    const db = openDatabase((await createLogin(scene.url, roles[own])).url);
    for (const kind of kinds) {
      const id = await register(kind);
      const tries = [
        ['select pgfresh_engine.register_process($1::text, $2::text)', [kind, 'mine']],
        ['select pgfresh_engine.heartbeat_process($1::bigint)', [id]],
        ['select pgfresh_engine.retire_process($1::bigint)', [id]],
      ] as const;
      for (const [text, values] of tries) {
        const done = db.query(text, values);
        if (kind === own) await done;
        else await expect(done).rejects.toMatchObject({ code: '42501' });
      }
      expect(await isThere(id)).toBe(kind !== own);
    }
  });
});

it('an upgrade keeps processes, what they hold and their leases', async () => {
  const db = openDatabase(await createDatabase({ empty: true }));
  const files = await readSqlFiles();
  const earlier = files.migrations.filter(({ name }) => name < '035');
  await migrate(db, { files: { ...files, migrations: earlier, functions: [] }, events: new Events() });
  await db.query(`
    insert into pgfresh_engine.worker_name (name, has_lease, last_seen_at) values ('w', true, now()), ('client', false, now());
    insert into pgfresh_engine.worker (id, name, started_at, lease_until) values (1, 'w', now(), now() + '1 hour');
    insert into pgfresh_engine.worker_service (worker, types, fetchers) values (1, '{}', '{quote}');
    insert into pgfresh_engine.scheduler (name, started_at, steady_since, lease_until, handlers, zone_data)
    select 's' || n, now(), now(), now() + '1 hour', array['h' || n], '2026a' from generate_series(1, 4) as n;
    insert into pgfresh_engine.nodes (name, started_at, lease_until)
    select 'g' || n, now(), now() + '1 hour' from generate_series(1, 4) as n;
    set session_replication_role = replica;
    insert into pgfresh.scheduled_job_runs (job_id, state, triggered_by, scheduled_for, started_at, scheduler)
    select n, 'running', 'scheduler', now(), now(), n from generate_series(1, 4) as n;
    insert into pgfresh_engine.node_demand (node_id, type_id, key, viewers) select n, 1, 'A', n from generate_series(1, 4) as n;
    reset session_replication_role;`);
  await migrate(db, { files, events: new Events() });
  expect(
    await db.query(
      `select kind, name, lease::text, lease_until > now() as alive, fetchers, handlers, r.job_id as job, d.viewers
       from pgfresh_engine.process as p left join pgfresh_engine.worker_service as w on w.worker = p.id
       left join pgfresh_engine.scheduler_service as s on s.scheduler = p.id
       left join pgfresh.scheduled_job_runs as r on r.scheduler = p.id left join pgfresh_engine.node_demand as d on d.node_id = p.id
       order by kind, name`,
    ),
  ).toEqual([
    ...[1, 2, 3, 4].map((n) => row({ kind: 'gateway', name: `g${n}`, lease: '00:00:30', viewers: n })),
    ...[1, 2, 3, 4].map((n) => row({ kind: 'scheduler', name: `s${n}`, handlers: [`h${n}`], job: n })),
    row({ kind: 'worker', name: 'w', fetchers: ['quote'] }),
  ]);
  const numbers = await db.query<{ id: number }>(
    'select id from pgfresh_engine.process union all select id from pgfresh_engine.worker_name where not has_lease',
  );
  expect(new Set(numbers.map(({ id }) => id)).size).toBe(10);
});

function row(values: object): object {
  return { lease: '00:00:12', alive: true, fetchers: null, handlers: null, job: null, viewers: null, ...values };
}
