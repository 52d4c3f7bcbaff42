import { setTimeout as wait } from 'node:timers/promises';
import type pg from 'pg';
import { viewedTypes, type SourceName } from '../cast.ts';
import type { World } from '../world.ts';

/** One random thing that happens to the system. It undoes itself; what it may leave behind is listed in `heal`. */
export interface Operation {
  readonly name: string;
  /** How often it is drawn, relative to the others. */
  readonly weight: number;
  /** Seconds until it is over, at most; it is not drawn when less is left. */
  readonly lasts: number;
  /** Of operations with the same word here, one is under way at a time. */
  readonly alone?: string;
  readonly run: (world: World) => Promise<void>;
}

export const users = ['ada', 'bob', 'cem'];
let made = 0;
/** Keys that nothing else has. */
export const newKeys = (word: string, count: number): string[] =>
  Array.from({ length: count }, () => `${word}${++made}`);
export const seconds = (count: number): Promise<void> => wait(count * 1_000);

/** Runs statements on a connection of their own, which waits for no lock for long. Deadlocks and waits are tried again. */
export async function change(world: World, ...statements: string[]): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const client = await world.db.connect();
    try {
      await client.query(`set lock_timeout = '8s'`);
      await client.query('begin');
      for (const statement of statements) await client.query(statement);
      await client.query('commit');
      return;
    } catch (error) {
      await client.query('rollback').catch(() => {});
      if (attempt === 5 || !/deadlock|lock timeout/.test((error as Error).message)) throw error;
    } finally {
      await client.query('reset lock_timeout').catch(() => {});
      client.release();
    }
  }
}

/** A transaction that stays open for a while, as an application's may. */
export async function holding(
  world: World,
  forSeconds: number,
  work: (client: pg.PoolClient) => Promise<unknown>,
): Promise<void> {
  const client = await world.db.connect();
  try {
    await client.query(`begin; set local lock_timeout = '5s'`);
    await work(client);
    await seconds(forSeconds);
    await client.query(world.random() < 0.7 ? 'commit' : 'rollback');
  } catch (error) {
    await client.query('rollback').catch(() => {});
    if (!/lock timeout|deadlock/.test((error as Error).message)) throw error;
  } finally {
    client.release();
  }
}

export async function queueByHand(world: World, type: string, keys: readonly string[]): Promise<void> {
  for (const key of keys) world.wants.queued(type, key);
  await world.db.query(`select count(*) from pgfresh_engine.queue_refreshes($1::text, $2::text[])`, [type, keys]);
}

export async function cancelByHand(world: World, type: string): Promise<void> {
  world.noteLoss();
  await world.db.query(`select pgfresh.cancel_queue_jobs(p_data_type => $1::text, p_status => 'pending')`, [type]);
}

export const setRate = (source: SourceName, rate: number | null): string =>
  `update pgfresh.sources set rate_limit_per_minute = ${rate} where name = '${source}'`;

export const lookAtAny = (world: World): { type: string; key: string; source: string } => {
  const { name, keys, source } = world.pick(viewedTypes);
  return { type: name, key: world.pick(keys), source };
};
