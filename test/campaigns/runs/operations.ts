import { setTimeout as wait } from 'node:timers/promises';
import { edits } from './cast.ts';
import type { Seat, World } from './world.ts';

interface Operation {
  readonly name: string;
  readonly weight: number;
  readonly run: (world: World) => Promise<void>;
}

/** Something that happens to one process, unless something happens to it already. */
function disturbance(name: string, weight: number, work: (seat: Seat, world: World) => Promise<void>): Operation {
  const run = async (world: World): Promise<void> => {
    const seat = world.pick(world.seats.filter(({ isBusy }) => !isBusy));
    if (!seat || (world.isReserved && name !== 'partition')) return;
    world.journal.note(name, seat.process.name);
    seat.isBusy = true;
    const trouble: Seat['troubles'][number] = { from: Date.now(), to: undefined };
    seat.troubles.push(trouble);
    try {
      await work(seat, world);
    } finally {
      trouble.to = Date.now();
      seat.isBusy = false;
    }
  };
  return { name, weight, run };
}

/** The same, with nothing else that happens to any process: the others can take over what this one runs. */
function aloneOnly(operation: Operation): Operation {
  const run = async (world: World): Promise<void> => {
    if (world.isReserved) return;
    world.isReserved = true;
    while (world.seats.some(({ isBusy }) => isBusy)) await wait(100);
    await operation.run(world);
    world.isReserved = false;
  };
  return { ...operation, run };
}

/** What an operator asks of a job: a statement whose $1 is its name. */
function request(name: string, weight: number, text: string | ((world: World) => string), jobs?: string): Operation {
  const run = async (world: World): Promise<void> => {
    const names = await world.query<{ name: string }>(
      `select name from pgfresh.scheduled_jobs where ${jobs ?? true} order by id`,
    );
    const job = world.pick(names)?.name;
    if (job === undefined) return;
    const statement = typeof text === 'string' ? text : text(world);
    const [row] = await world.query<{ answer?: unknown }>(statement, [job]);
    world.journal.note(name, `${job}: ${JSON.stringify(row?.answer ?? statement).slice(0, 200)}`, { job });
  };
  return { name, weight, run };
}

function cancellation(name: string, weight: number, states: readonly string[]): Operation {
  const run = async (world: World): Promise<void> => {
    const runs = await world.query<{ id: string; job: string; state: string }>(
      `select r.id, j.name as job, r.state from pgfresh.scheduled_job_runs as r join pgfresh.scheduled_jobs as j on j.id = r.job_id
       where r.state = any ($1::text[]) order by r.id`,
      [states],
    );
    const found = world.pick(runs);
    if (!found) return;
    world.journal.note(name, `run ${found.id} of ${found.job}, ${found.state}`, { job: found.job });
    await world.query('select pgfresh.cancel_scheduled_run($1::bigint)', [found.id]);
  };
  return { name, weight, run };
}

const operations: readonly Operation[] = [
  disturbance('kill', 1, async (seat, world) => {
    await seat.process.end('SIGKILL');
    await wait(world.random() * 3_000);
    await world.restart(seat);
  }),
  disturbance('stop', 0.5, async (seat, world) => {
    await seat.process.end('SIGTERM');
    await world.restart(seat);
  }),
  aloneOnly(
    // For so long that its lease ends, and another process is at what it has run.
    disturbance('partition', 1, async (seat, world) => {
      seat.isCutOff = true;
      await wait(21_000 + world.random() * 6_000);
      seat.isCutOff = false;
      if (world.random() < 0.5) seat.proxy.release();
      else seat.proxy.cut();
    }),
  ),
  disturbance('cut', 1, async ({ proxy }) => proxy.cut()),
  disturbance('lose answers', 1, async (seat) => {
    seat.isDeaf = true;
    await wait(1_000);
    seat.isDeaf = false;
    seat.proxy.cut();
  }),
  disturbance('drop any connections', 1, async ({ proxy, dropped }, world) => {
    for (const { id } of proxy.connections) if (world.random() < 0.3) dropped.add(id);
    await wait(15_000);
    // Statements of the engine wait for up to 35 s, each that meets such a connection.
    proxy.cut(dropped);
  }),
  {
    // No excuse for anyone: limits hold on these connections.
    name: 'drop connections of jobs',
    weight: 4,
    async run(world) {
      const { proxy, process, dropped } = world.pick(world.seats)!;
      world.journal.note(this.name, process.name);
      for (const { id, name } of proxy.connections)
        if (/^pgfresh (jobs|handlers)$/.test(name) && world.random() < 0.5) dropped.add(id);
    },
  },
  {
    name: 'interrupt',
    weight: 4,
    async run(world) {
      const how = world.pick(['pg_cancel_backend', 'pg_terminate_backend'])!;
      const sessions = await world.query<{ pid: number }>(
        `select pid from pg_stat_activity where application_name in ('pgfresh jobs', 'pgfresh handlers') and state <> 'idle' order by pid`,
      );
      const session = world.pick(sessions);
      if (!session) return;
      world.journal.note(this.name, `${how} of ${session.pid}`);
      await world.query(`select ${how}($1::int)`, [session.pid]);
    },
  },
  request('edit', 12, (world) => `update pgfresh.scheduled_jobs set ${world.pick(edits)!} where name = $1::text`),
  request(
    'pause',
    5,
    `update pgfresh.scheduled_jobs set paused_until = clock_timestamp() + interval '8 s', paused_reason = 'campaign' where name = $1::text`,
  ),
  request(
    'pause for long',
    3,
    `update pgfresh.scheduled_jobs set paused_until = 'infinity', paused_reason = 'campaign' where name = $1::text`,
  ),
  request(
    'resume',
    5,
    'update pgfresh.scheduled_jobs set paused_until = null where name = $1::text',
    'paused_until is not null',
  ),
  cancellation('cancel', 8, ['running', 'waiting']),
  cancellation('cancel queued', 6, ['queued']),
  request('trigger', 20, 'select pgfresh.trigger_scheduled_job($1::text) as answer'),
  request(
    'backfill',
    6,
    `select pgfresh.backfill_scheduled_job($1::text, array(select generate_series(date_trunc('minute', clock_timestamp()) - interval '4 min',
       clock_timestamp(), interval '1 min')), 600) as answer`,
    'schedule is not null',
  ),
];

/** However short a campaign is, it meets these. */
const first = ['kill', 'partition'];

/** The next operation, when so many were drawn before. */
export function draw(world: World, only: string | undefined, count: number): Operation | undefined {
  const free = operations.filter(({ name }) => !only || only.split(',').some((words) => name.includes(words)));
  const early = free.find(({ name }) => name === first[count]);
  let left = world.random() * free.reduce((sum, { weight }) => sum + weight, 0);
  return early ?? free.find(({ weight }) => (left -= weight) < 0);
}

/** Ends every disturbance and pause. */
export async function heal(world: World): Promise<void> {
  for (const seat of world.seats) {
    seat.dropped.clear();
    seat.proxy.cut();
    seat.troubles.push({ from: Date.now(), to: Date.now() });
  }
  await world.query('update pgfresh.scheduled_jobs set enabled = true where not enabled');
  await world.query('update pgfresh.scheduled_jobs set paused_until = null where paused_until > pgfresh.clock()');
}
