import type pg from 'pg';
import { plannerStatement } from '../../src/planner/index.ts';
import { now } from '../clock.ts';

/** One way to queue all stale pairs, and where it queues them. */
export interface Pass {
  readonly name: 'sweep' | 'tick' | 'bare insert' | 'loop';
  /** Changes nothing; prepares the connection's statements, as in a long-lived one. */
  warmUp(client: pg.Client): Promise<void>;
  run(client: pg.Client): Promise<void>;
  /** What it queued: `data_type`, `key` and `priority`. */
  readonly queued: string;
}

const queuedByUs = `select r.data_type, j.key, j.priority from pgfresh_engine.job as j join pgfresh.data_type_registry as r using (type_id)`;

export const sweep: Pass = {
  name: 'sweep',
  async warmUp(client) {
    await client.query(askEveryType);
    await tried(client, 'select pgfresh.check_and_queue_stale_data(20)');
  },
  async run(client) {
    let done = false;
    while (!done) {
      const { rows } = await client.query<{ answer: { done: boolean } }>(
        plannerStatement('pgfresh.check_and_queue_stale_data'),
      );
      done = rows[0]!.answer.done;
    }
  },
  queued: queuedByUs,
};

export const tick: Pass = {
  name: 'tick',
  async warmUp(client) {
    await client.query(askEveryType);
    await tried(client, 'select pgfresh_engine.plan_due_pairs(20)');
  },
  async run(client) {
    while (await tickOnce(client));
  },
  queued: queuedByUs,
};

export const bareInsert: Pass = {
  name: 'bare insert',
  warmUp: (client) => tried(client, bareStatement),
  async run(client) {
    await client.query({ name: 'bare', text: bareStatement });
  },
  queued: queuedByUs.replace('pgfresh_engine.job', 'bare_job'),
};

export const loop: Pass = {
  name: 'loop',
  warmUp: async () => {},
  async run(client) {
    await client.query('select reference.check_and_queue_stale_data()');
  },
  queued: 'select data_type, key, priority from reference.queue',
};

/** A planner that has run for a while has asked about pairs of each data type. */
const askEveryType = `
  select a.* from pgfresh.data_type_registry as r
  cross join lateral pgfresh_engine.ask_stale(r.type_id, '{x}', array[now()], array[now()], array[now()], r.ttl, now()) as a`;

const bareStatement = `
  insert into bare_job (id, seq, run_at, created_at, est_bytes, type_id, source_id, priority, band, lane, state, key)
  select nextval('pgfresh_engine.job_id'), 0, now(), now(), 0, type_id, 1, p.viewers, 0, 0, 'r', key
  from pgfresh_engine.due as d join pgfresh_engine.pairs as p using (type_id, key) where d.due_at <= now()`;

/** Whether there is more to do at once. */
async function tickOnce(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ answer: { more: boolean } }>(plannerStatement('pgfresh_engine.plan_due_pairs'));
  return rows[0]!.answer.more;
}

/** Times of single ticks with nothing to do. */
export async function timeIdleTicks(client: pg.Client, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let call = 0; call < count; call++) {
    const began = now();
    await tickOnce(client);
    times.push(now() - began);
  }
  return times;
}

export async function timePass(pass: Pass, client: pg.Client): Promise<{ ms: number; queued: string[] }> {
  await pass.warmUp(client);
  const began = now();
  await pass.run(client);
  const ms = now() - began;
  const { rows } = await client.query<{ data_type: string; key: string; priority: number }>(pass.queued);
  return { ms, queued: rows.map((row) => `${row.data_type} ${row.key} ${row.priority}`).toSorted() };
}

async function tried(client: pg.Client, statement: string): Promise<void> {
  // Ten times, because the first five executions of a statement are planned anew.
  for (let time = 0; time < 10; time++) {
    await client.query('begin');
    await client.query(statement);
    await client.query('rollback');
  }
}
