import { allowances } from '../allowances.ts';
import { wide } from '../cast.ts';
import { Persistence, type Invariant } from './invariant.ts';
import { judgeConcurrency, judgeRate, type LimitChange } from './limits.ts';
import { noPairStarves } from './waiting.ts';

/** Calls are judged when all changes that came before them are known. */
const judgedAfterMs = 2_500;

export function continuous(): Invariant[] {
  let judged = 0;
  const orphans = new Persistence();
  const strays = new Persistence();
  const leaks = new Persistence();
  const attempts = new Persistence();
  return [
    {
      name: 'calls stay within limits',
      holds:
        'In any 60 s each API key of a source is called at most as often as the highest limit in force allows; so are jobs at once.',
      async look(world) {
        const { calls } = world.provider;
        const { rows: changes } = await world.db.query<LimitChange>(
          `select extract(epoch from at)::float8 * 1000 as at, source, rate, concurrency from public.limit_change where not gone order by at`,
        );
        for (; judged < calls.length && calls[judged]!.at < Date.now() - judgedAfterMs; judged++) {
          const call = calls[judged]!;
          judgeRate(world, changes, judged, call);
          judgeConcurrency(world, changes, call);
        }
      },
    },
    {
      name: 'every job has a type, a source and a pair',
      holds: 'No open job is without one of them, and no pair names a job that does not exist.',
      async look(world) {
        const { rows } = await world.db.query<{ name: string }>(`
          select o.name
          from (
            select format('job %s of %s %s has no %s', j.id, coalesce(r.data_type, 'type ' || j.type_id), j.key,
              case when r.type_id is null then 'type' when s.id is null then 'source' else 'pair' end) as name
            from pgfresh_engine.job as j
            left join pgfresh.data_type_registry as r on r.type_id = j.type_id
            left join pgfresh.sources as s on s.id = j.source_id
            left join pgfresh_engine.pairs as p on p.type_id = j.type_id and p.key = j.key and p.job_id = j.id
            where r.type_id is null or s.id is null or p.key is null
            -- What a process is ending that is cut off stays until the server ends its transaction.
            for share of j skip locked
          ) as o
          union all
          select format('the pair %s %s names the job %s, which is not there', p.type_id, p.key, p.job_id)
          from pgfresh_engine.pairs as p
          where p.job_id is not null and not exists (select from pgfresh_engine.job as j where j.id = p.job_id)`);
        for (const name of orphans.seen(rows.map((row) => row.name))) world.journal.violated(this.name, {}, name);
      },
    },
    {
      name: 'jobs are queued at the source of their type',
      holds: 'A job that waits is at the source that its data type has now.',
      async look(world) {
        const { rows } = await world.db.query<{ name: string; type: string; source: string }>(`
          select format('job %s of %s %s waits at %s, and its type is of %s', j.id, r.data_type, j.key, coalesce(s.name, 'no source'), r.source) as name,
            r.data_type as type, r.source
          from pgfresh_engine.job as j
          join pgfresh.data_type_registry as r on r.type_id = j.type_id
          left join pgfresh.sources as s on s.id = j.source_id
          where j.state <> 'x' and j.source_id <> r.source_id`);
        const found = strays.seen(rows.map((row) => row.name));
        for (const { name, type } of rows.filter((row) => found.includes(row.name)))
          world.journal.violated(this.name, { type }, name);
      },
    },
    {
      name: 'reservations are those of running jobs',
      holds: 'What a source has reserved is the sum of what its running jobs have reserved.',
      async look(world) {
        const { rows } = await world.db.query<{ source: string; reserved: string; running: string }>(`
          select s.name as source, st.reserved, coalesce((
            select sum(j.reserved) from pgfresh_engine.job as j where j.source_id = s.id and j.state = 'x'), 0) as running
          from pgfresh.sources as s join pgfresh_engine.source_state as st on st.source_id = s.id`);
        const wrong = rows.filter(({ reserved, running }) => reserved !== running);
        const found = leaks.seen(
          wrong.map(({ source, reserved, running }) => `${source}: ${Number(reserved) - Number(running)}`),
        );
        for (const text of found) {
          const [source = ''] = text.split(':');
          world.journal.violated(this.name, { source }, `${text} bytes are reserved for nothing`);
        }
      },
    },
    {
      name: 'put-backs are bounded',
      holds: `A job has at most ${allowances.putBacks} attempts that counted neither a retry nor a loss.`,
      async look(world) {
        const { rows } = await world.db.query<{
          id: string;
          type: string;
          key: string;
          attempt: number;
          retries: number;
        }>(
          `select j.id, r.data_type as type, j.key, j.attempt, j.retries from pgfresh_engine.job as j join pgfresh.data_type_registry as r using (type_id)
           where j.attempt - j.retries - j.lost > $1::int`,
          [allowances.putBacks],
        );
        const found = attempts.seen(
          rows.map(({ id }) => id),
          0,
        );
        for (const { id, type, key, attempt, retries } of rows.filter((row) => found.includes(row.id)))
          world.journal.violated(
            this.name,
            { type, key },
            `job ${id} of ${type} ${key} is in attempt ${attempt} with ${retries} retries`,
          );
      },
    },
    noPairStarves(),
    {
      name: 'statements do not grow with answers',
      holds: `A process prepares at most ${allowances.writeStatements} statements that write a data type of eight optional columns.`,
      look(world) {
        const { most } = world.writeStatements;
        if (most > allowances.writeStatements)
          world.journal.violated(this.name, { type: wide.name }, `a process has prepared ${most} that write wide`);
      },
    },
    {
      name: 'nothing deadlocks',
      holds: 'PostgreSQL has had to end no transaction because two waited for each other.',
      async look(world) {
        const { rows } = await world.db.query<{ deadlocks: string }>(
          'select deadlocks from pg_stat_database where datname = current_database()',
        );
        const count = Number(rows[0]!.deadlocks);
        if (count > 0) world.journal.violated(this.name, {}, `${count} so far`);
      },
    },
    {
      name: 'the planner ticks',
      holds: 'While a planner runs, ticks go on, whatever is locked or hangs.',
      async look(world) {
        if (!world.wasWhole(Date.now() - allowances.tick)) return;
        const { rows } = await world.db.query<{ ago: number }>(
          `select extract(epoch from pgfresh.clock() - max(last_at))::float8 * 1000 as ago from pgfresh_engine.planner_run where kind = 'tick'`,
        );
        const [{ ago } = { ago: 0 }] = rows;
        if (ago > allowances.tick + world.lag)
          world.journal.violated(this.name, {}, `the last tick was ${Math.round(ago / 1000)} s ago`);
      },
    },
    {
      name: 'processes run until they are asked to end',
      holds: 'No process exits by itself, and each that is asked to stop does so in time.',
      look(world) {
        for (const running of [...world.processes.values(), ...world.ended])
          if (running.problem !== undefined && running.readyAt !== undefined)
            world.journal.violated(
              this.name,
              {},
              `${running.tag} (${running.plan.roles}) ${running.problem}: ${running.lastWords}`,
            );
      },
    },
  ];
}
