import { setTimeout as wait } from 'node:timers/promises';
import { edits } from './cast.ts';
import type { Seat, World } from './world.ts';

interface Operation {
  readonly name: string;
  readonly weight: number;
  readonly run: (world: World) => Promise<void>;
}

/** Disturbs one process, unless it is disturbed already. The other one goes on, so that lost runs are taken over. */
async function disturb(world: World, what: string, work: (seat: Seat) => Promise<void>): Promise<void> {
  const seat = world.pick(world.seats.filter(({ isBusy }) => !isBusy));
  if (!seat || (world.isReserved && what !== 'partition')) return;
  world.journal.note(what, seat.process.name);
  seat.isBusy = true;
  const trouble: Seat['troubles'][number] = { from: Date.now(), to: undefined };
  seat.troubles.push(trouble);
  try {
    await work(seat);
  } finally {
    trouble.to = Date.now();
    seat.isBusy = false;
  }
}

async function ask(world: World, what: string, text: string, job = world.anyJob()): Promise<void> {
  const [row] = await world.query<{ answer: unknown }>(text, [job]);
  world.journal.note(what, `${job}: ${JSON.stringify(row?.answer ?? null).slice(0, 200)}`, { job });
}

async function cancel(world: World, states: readonly string[]): Promise<void> {
  const runs = await world.query<{ id: string; job: string; state: string }>(
    `select r.id, j.name as job, r.state from pgfresh.scheduled_job_runs as r join pgfresh.scheduled_jobs as j on j.id = r.job_id
     where r.state = any ($1::text[]) order by r.id`,
    [states],
  );
  const run = world.pick(runs);
  if (!run) return;
  world.journal.note(`cancel ${states[0]}`, `run ${run.id} of ${run.job}, ${run.state}`, { job: run.job });
  await world.query('select pgfresh.cancel_scheduled_run($1::bigint)', [run.id]);
}

export const operations: readonly Operation[] = [
  {
    name: 'kill',
    weight: 1,
    run: (world) =>
      disturb(world, 'kill', async (seat) => {
        await seat.process.end('SIGKILL');
        await wait(world.random() * 3_000);
        await world.restart(seat);
      }),
  },
  {
    name: 'stop',
    weight: 0.5,
    run: (world) =>
      disturb(world, 'stop', async (seat) => {
        await seat.process.end('SIGTERM');
        await world.restart(seat);
      }),
  },
  {
    name: 'partition',
    weight: 1,
    async run(world) {
      if (world.isReserved) return;
      // For so long that the other process takes over what this one runs. So that one is left alone meanwhile.
      world.isReserved = true;
      while (world.seats.some(({ isBusy }) => isBusy)) await wait(100);
      await disturb(world, 'partition', async (seat) => {
        seat.isCutOff = true;
        await wait(21_000 + world.random() * 6_000);
        seat.isCutOff = false;
        if (world.random() < 0.5) seat.proxy.release();
        else seat.proxy.cut();
      });
      world.isReserved = false;
    },
  },
  {
    name: 'cut',
    weight: 1,
    run: (world) => disturb(world, 'cut', async (seat) => seat.proxy.cut()),
  },
  {
    name: 'drop any connections',
    weight: 1,
    run: (world) =>
      disturb(world, 'drop any connections', async (seat) => {
        for (const { id } of seat.proxy.connections) if (world.random() < 0.3) seat.dropped.add(id);
        await wait(15_000);
        // Statements of the engine wait for up to 35 s, each that meets such a connection.
        seat.proxy.cut(seat.dropped);
      }),
  },
  {
    // No excuse for anyone: limits hold on these connections.
    name: 'drop connections of jobs',
    weight: 4,
    async run(world) {
      const seat = world.pick(world.seats)!;
      world.journal.note('drop connections of jobs', seat.process.name);
      for (const { id, name } of seat.proxy.connections)
        if (/^pgfresh (jobs|handlers)$/.test(name) && world.random() < 0.5) seat.dropped.add(id);
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
      world.journal.note('interrupt', `${how} of ${session.pid}`);
      await world.query(`select ${how}($1::int)`, [session.pid]);
    },
  },
  {
    name: 'edit',
    weight: 12,
    run: (world) => {
      const edit = world.pick(edits)!;
      return ask(
        world,
        'edit',
        `update pgfresh.scheduled_jobs set ${edit} where name = $1::text returning ${JSON.stringify(edit).replaceAll("'", '’').replaceAll('"', "'")} as answer`,
      );
    },
  },
  {
    name: 'pause',
    weight: 5,
    run: (world) =>
      ask(
        world,
        'pause',
        `select pgfresh.pause_scheduled_job($1::text, 'campaign', clock_timestamp() + interval '8 s') as answer`,
      ),
  },
  {
    name: 'pause for long',
    weight: 3,
    run: (world) => ask(world, 'pause for long', `select pgfresh.pause_scheduled_job($1::text, 'campaign') as answer`),
  },
  {
    name: 'resume',
    weight: 5,
    async run(world) {
      const jobs = await world.query<{ name: string }>(
        'select name from pgfresh.scheduled_jobs where paused_at is not null order by id',
      );
      const job = world.pick(jobs);
      if (job) await ask(world, 'resume', 'select pgfresh.resume_scheduled_job($1::text) as answer', job.name);
    },
  },
  { name: 'cancel', weight: 8, run: (world) => cancel(world, ['running', 'waiting']) },
  { name: 'cancel queued', weight: 6, run: (world) => cancel(world, ['queued']) },
  {
    name: 'trigger',
    weight: 20,
    run: (world) => ask(world, 'trigger', 'select pgfresh.trigger_scheduled_job($1::text) as answer'),
  },
  {
    name: 'backfill',
    weight: 6,
    run: (world) =>
      ask(
        world,
        'backfill',
        `select pgfresh.backfill_scheduled_job($1::text, array(select generate_series(date_trunc('minute', clock_timestamp()) - interval '4 min',
           clock_timestamp() - interval '1 s', interval '1 min')), 600) as answer`,
        `job-${3 * (1 + Math.floor(world.random() * 66))}`,
      ),
  },
];

/** However short a campaign is, it meets these. */
const first = ['kill', 'partition'];

export function draw(world: World, only: string | undefined, count: number): Operation | undefined {
  const free = operations.filter(({ name }) => !only || only.split(',').some((words) => name.includes(words)));
  const begins = free.find(({ name }) => name === first[count]);
  if (begins) return begins;
  let left = world.random() * free.reduce((sum, { weight }) => sum + weight, 0);
  return free.find(({ weight }) => (left -= weight) < 0);
}

/** Ends every disturbance and pause. */
export async function heal(world: World): Promise<void> {
  for (const seat of world.seats) {
    seat.dropped.clear();
    seat.proxy.cut();
    seat.troubles.push({ from: Date.now(), to: Date.now() });
  }
  await world.query('update pgfresh.scheduled_jobs set enabled = true where not enabled');
  await world.query(
    'select pgfresh.resume_scheduled_job(name) from pgfresh.scheduled_jobs where paused_at is not null',
  );
}
