import { beforeAll, beforeEach, describe, expect, it, test } from 'vitest';
import type { LiveClient, Said } from './live-client.ts';
import { LiveScene, tokenOf, type RunningGateway } from './live-scene.ts';

let scene: LiveScene;
let running: RunningGateway;
beforeAll(async () => {
  scene = await LiveScene.open();
});
beforeEach(async () => {
  await scene.clear();
  running = await scene.gateway();
});

async function look(key: string): Promise<LiveClient> {
  const client = await running.greet('ada');
  await client.want([['quote', key]]);
  return client;
}

/** The next state that matches. */
async function until(client: LiveClient, isWanted: (said: Said) => boolean): Promise<Said> {
  for (;;) {
    const said = await client.next();
    if (isWanted(said)) return said;
  }
}

/** Queues a pair, claims its job, and ends it. */
async function refresh(key: string, end?: string): Promise<void> {
  await scene.db.query(`select pgfresh.queue_refresh_if_not_exists($1::text, 'quote', p_force => true)`, [key]);
  const [job] = await scene.value<{ id: number }[]>('pgfresh.get_queue_batch(1)');
  if (end !== undefined) await scene.db.query(`select ${end}`, [job!.id]);
}

const failedForGood = `pgfresh.fail_queue_job($1::bigint, 'no', null, true)`;

test('truth 1: a row that is deleted by others is missing for its viewers, and one that they make older is stale', async () => {
  await scene.quote('A', 1);
  const client = await look('A');
  expect(await client.next('snapshot')).toMatchObject({ status: 'ready', state: 'fresh', activity: 'idle' });
  await scene.db.query(`update quote set fetched_at = fetched_at - interval '2 days'`);
  expect(await client.next('change')).toMatchObject({ status: 'ready', state: 'stale', rows: [{ price: 1 }] });
  await scene.db.query('delete from quote');
  const gone = await until(client, ({ rows }) => rows !== undefined);
  expect(gone).toMatchObject({ status: 'loading', state: 'missing', activity: 'waiting', rows: [], fetched_at: null });
});

test('truth 2: an older answer does not make a row fresh, and viewers get the age at the source', async () => {
  await scene.quote('A', 1, '2 minutes');
  await refresh('A', `pgfresh.complete_queue_job($1::bigint, 0, null, 'older_source')`);
  await scene.db.query(`update pgfresh_engine.pairs set source_at = pgfresh.clock() - interval '80 seconds'`);
  const said = await (await look('A')).next('snapshot');
  expect(said).toMatchObject({ status: 'ready', state: 'older_source' });
  const age = Date.now() - Date.parse(said['source_at'] as string);
  expect(age).toBeGreaterThan(79_000);
  expect(age).toBeLessThan(120_000);
});

describe('truth 3: a refresh that fails', () => {
  const error = { code: 'PGF_LIVE_REFRESH_FAILED', message: 'The last refresh failed.' };

  it('truth 3: keeps the row, stale and with an error', async () => {
    await scene.quote('A', 1, '2 minutes');
    await refresh('A', failedForGood);
    expect(await (await look('A')).next('snapshot')).toMatchObject({ status: 'ready', state: 'stale', error });
  });

  it('truth 3: shows an error and not a spinner if there is no row', async () => {
    await refresh('A', failedForGood);
    const said = await (await look('A')).next('snapshot');
    expect(said).toMatchObject({ status: 'error', state: 'missing', activity: 'waiting', reason: 'refused', error });
    expect(Date.parse(said['until'] as string)).toBeGreaterThan(Date.now());
  });
});

test('truth 8: a waiting pair has a reason and a time', async () => {
  await scene.db.query(
    `update pgfresh.sources set paused_until = pgfresh.clock() + interval '4 minutes', paused_by = 'breaker'`,
  );
  const said = await (await look('A')).next('snapshot');
  expect(said).toMatchObject({ status: 'loading', state: 'missing', activity: 'waiting', reason: 'breaker' });
  const leftMs = Date.parse(said['until'] as string) - Date.now();
  expect(leftMs).toBeGreaterThan(200_000);
  // Rounded up.
  expect(Date.parse(said['until'] as string) % 10_000).toBe(0);
  await scene.db.query(`update pgfresh.sources set paused_until = null, paused_by = null`);
});

test('truth 13: a pair stays stale or missing until its refresh has ended', async () => {
  await scene.quote('A', 1, '2 minutes');
  await refresh('A');
  await refresh('B');
  expect(await (await look('A')).next('snapshot')).toMatchObject({
    status: 'ready',
    state: 'stale',
    activity: 'refreshing',
    reason: null,
    words: 'It is being refreshed.',
  });
  expect(await (await look('B')).next('snapshot')).toMatchObject({
    status: 'loading',
    state: 'missing',
    activity: 'refreshing',
  });
});

test('truth 15: viewers learn by every transport that the source has no data, and when it has some again', async () => {
  const client = await look('A');
  expect(await client.next('snapshot')).toMatchObject({ status: 'loading', state: 'missing' });
  const [job] = await scene.value<{ id: number }[]>('pgfresh.get_queue_batch(1)');
  await scene.db.query(`select pgfresh.complete_queue_job($1::bigint, 0, null, 'empty')`, [job!.id]);
  const empty = { status: 'empty', state: 'empty', activity: 'idle', reason: null, error: null };
  expect(await until(client, ({ state }) => state === 'empty')).toMatchObject(empty);
  const token = { authorization: `Bearer ${await tokenOf('ben')}` };
  const read = await fetch(`${running.http.url}/live/quote/A`, { headers: token });
  expect(await read.json()).toMatchObject({ ...empty, rows: [] });
  await scene.quote('A', 1);
  expect(await until(client, ({ rows }) => rows !== undefined)).toMatchObject({
    status: 'ready',
    rows: [{ price: 1 }],
  });
});

test('truth 1: a row past its time is never called fresh, to any client', async () => {
  await scene.quote('A', 1, '55 seconds');
  const client = await look('A');
  const said = await client.next('snapshot');
  expect(said).toMatchObject({ state: 'fresh', activity: 'idle' });
  // Clients that have it know the time.
  const staleAt = Date.parse(said['stale_at'] as string);
  const headers = { authorization: `Bearer ${await tokenOf('ben')}` };
  const read = async () => (await (await fetch(`${running.http.url}/live/quote/A`, { headers })).json()) as Said;
  // By the database's clock, which is that of this machine.
  await expect.poll(() => Date.now()).toBeGreaterThan(staleAt + 50);
  expect(await read()).toMatchObject({ state: 'stale', activity: 'idle', words: 'It is older than it should be.' });
});
