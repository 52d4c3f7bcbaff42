import { lockClass, mostConnections } from './cast.ts';
import type { World } from './world.ts';

interface Invariant {
  readonly name: string;
  readonly look: (world: World) => Promise<void>;
}

/** Time limits are held within this, and what the machine was slow by. */
const lateMs = 2_000;
const strandedMs = 30_000;

/** Looks for rows that must not be there; each names its job. */
function none(name: string, text: string, values: (world: World) => unknown[] = () => []): Invariant {
  return {
    name,
    async look(world) {
      const rows = await world.query<{ job?: string }>(text, values(world));
      for (const row of rows) world.journal.violated(name, { job: row.job }, JSON.stringify(row));
    },
  };
}

/** The same, of rows that may be there for a moment: seen in two looks, one after the other. */
function noneForLong(name: string, text: string): Invariant {
  let before = new Set<string>();
  return {
    name,
    async look(world) {
      const rows = await world.query<{ job: string }>(text);
      for (const row of rows)
        if (before.has(JSON.stringify(row))) world.journal.violated(name, { job: row.job }, JSON.stringify(row));
      before = new Set(rows.map((row) => JSON.stringify(row)));
    },
  };
}

const handlersAlone: Invariant = {
  name: 'never two at once: handlers',
  async look({ spans, journal, stall }) {
    // Lines of two processes come in no order: what is younger is looked at the next time.
    const until = Date.now() - lateMs - stall.recent;
    for (const [job, all] of Map.groupBy(spans, (span) => span.job)) {
      const old = all.filter(({ from }) => from < until).toSorted((one, other) => one.from - other.from);
      for (const [index, span] of old.entries()) {
        const next = old[index + 1];
        if (next && (span.to ?? Infinity) > next.from)
          journal.violated(this.name, { job }, `${job}: ${JSON.stringify([span, next])}`);
      }
    }
    // Those that have ended long ago can meet no one any more.
    const kept = spans.filter(({ to = Infinity }) => to > Date.now() - 60_000);
    spans.splice(0, spans.length, ...kept);
  },
};

/** What is under way, and handlers that have ended: for how long, and by how much more than its limit allows. */
const work = `
  select w.*, w.ms - public.limit_ms(w.job, w.since) as over from (
    select 'a handler' as what, s.job, s.process, null::int as port, to_timestamp(s.from / 1000) as since, s.ms
    from jsonb_to_recordset($1::jsonb) as s(job text, process text, "from" float8, ms float8)
    union all
    select 'run ' || r.id, j.name, r.worker, null, r.started_at, 1000 * extract(epoch from clock_timestamp() - r.started_at)
    from pgfresh.scheduled_job_runs as r join pgfresh.scheduled_jobs as j on j.id = r.job_id where r.state = 'running'
    union all
    select 'the function', 'job-' || l.objid, null, a.client_port, a.xact_start, 1000 * extract(epoch from clock_timestamp() - a.xact_start)
    from pg_locks as l join pg_stat_activity as a on a.pid = l.pid
    where l.locktype = 'advisory' and l.classid = ${lockClass} and l.granted
  ) as w`;

const limits: Invariant = {
  name: 'limits hold',
  async look(world) {
    const { spans, processes, stall, journal } = world;
    const gone = new Set(processes.filter(({ exitedAt }) => exitedAt !== undefined).map(({ name }) => name));
    const handlers = spans
      .filter(({ process }) => !gone.has(process))
      .map(({ to = Date.now(), ...span }) => ({ ...span, ms: to - span.from }));
    const rows = await world.query<{
      what: string;
      job: string;
      process: string | null;
      port: number;
      ms: number;
      over: number;
    }>(work, [JSON.stringify(handlers)]);
    for (const { what, job, port, ms, over, ...row } of rows) {
      const process = row.process ?? world.seatOf(port)?.process.name ?? 'a process that is gone';
      const words = `${what} of ${job} in ${process} takes ${Math.round(ms)} ms, ${Math.round(over)} ms over its limit`;
      // A handler has its limit from its own process, also when that is cut off.
      const isWhole = what === 'a handler' || world.wasWhole(process, Date.now() - ms);
      if (isWhole && over > lateMs + stall.recent) journal.violated(this.name, { job }, words);
      if (Math.min(over, world.calmMs) > strandedMs + stall.recent)
        journal.violated('nothing stranded: running', { job }, words);
    }
  },
};

const connections: Invariant = {
  name: 'no connection leaked',
  async look(world) {
    const { seats, journal, stall } = world;
    for (const { process, proxy } of seats) {
      for (const [name, { length }] of Map.groupBy(proxy.connections, (one) => one.name)) {
        const most = name === '' ? Infinity : (mostConnections[name] ?? 0);
        if (length > most)
          journal.violated(this.name, {}, `${process.name} has ${length} of "${name}", expected at most ${most}`);
      }
    }
    const idle = await world.query<{ pid: number; port: number; name: string; ms: number; query: string }>(
      `select pid, client_port as port, application_name as name, left(query, 200) as query,
         1000 * extract(epoch from clock_timestamp() - state_change)::float8 as ms
       from pg_stat_activity where datname = current_database() and application_name like 'pgfresh%' and state like 'idle in transaction%'`,
    );
    for (const row of idle) {
      const seat = world.seatOf(row.port);
      const connection = seat?.proxy.connections.find((one) => one.port === row.port);
      // Of a connection that is dropped nothing arrives; it ends when its owner gives up.
      const isWhole =
        seat && !seat.dropped.has(connection?.id ?? 0) && world.wasWhole(seat.process.name, Date.now() - row.ms);
      if (row.ms > (isWhole ? lateMs : strandedMs) + stall.recent)
        journal.violated('no connection idle in transaction', {}, `${seat?.process.name}: ${JSON.stringify(row)}`);
    }
  },
};

const processesLive: Invariant = {
  name: 'processes live',
  async look({ processes, journal }) {
    for (const { name, isAsked, exitedAt, lastWords } of processes)
      if (!isAsked && exitedAt !== undefined)
        journal.violated(this.name, {}, `${name} has ended by itself: ${lastWords.join(' / ')}`);
  },
};

/** Slots of a job in cron have a row per minute; the slots of the others depend on the ends of runs. */
const slots = `
  with rows as (
    select r.*, generate_series(r.scheduled_for, coalesce(r.scheduled_to, r.scheduled_for), interval '1 minute') as slot
    from pgfresh.scheduled_job_runs as r where r.triggered_by <> 'manual' or r.state = 'skipped'
  )`;

export const continuous: readonly Invariant[] = [
  none('never two at once: functions', `select 'job-' || last_value as job from public.twice where is_called`),
  none(
    'never two at once: states',
    `select j.name as job, array_agg(r.id) as runs from pgfresh.scheduled_job_runs as r join pgfresh.scheduled_jobs as j on j.id = r.job_id
     where r.state = 'running' group by j.name having count(*) > 1`,
  ),
  handlersAlone,
  limits,
  connections,
  processesLive,
  none(
    'nothing stranded: queued',
    `select j.name as job, array_agg(r.id) as runs from pgfresh.scheduled_job_runs as r join pgfresh.scheduled_jobs as j on j.id = r.job_id
     where r.state in ('queued', 'waiting', 'running') group by j.name having bool_and(r.state = 'queued')`,
  ),
  noneForLong(
    'nothing stranded: jobs without a next slot',
    `select j.name as job from pgfresh.scheduled_jobs as j join pgfresh_engine.job_cursor as c on c.job_id = j.id
     where j.enabled and (c.due_at = 'infinity' or c.due_at is null)
       and not exists (select from pgfresh.scheduled_job_runs as r where r.job_id = j.id and r.state in ('queued', 'waiting', 'running'))`,
  ),
  none(
    'slots: once, or skipped',
    `${slots} select j.name as job, r.slot, array_agg(format('%s %s %s #%s', r.id, r.state, r.triggered_by, r.attempt) order by r.id) as runs
     from rows as r join pgfresh.scheduled_jobs as j on j.id = r.job_id
     group by j.name, r.slot
     having count(*) filter (where r.state = 'succeeded') > 1 or count(*) filter (where r.state in ('queued', 'waiting', 'running')) > 1
       or count(*) filter (where r.state = 'skipped') > 1
       or bool_or(r.state = 'skipped') and bool_or(r.state <> 'skipped' and r.triggered_by <> 'backfill')
       or count(*) filter (where r.state <> 'skipped') <> coalesce(max(r.attempt) filter (where r.state <> 'skipped'), 0)`,
  ),
];

export const whenQuiet: readonly Invariant[] = [
  none(
    // A changed schedule starts anew: slots are accounted for from the first one seen since.
    'slots: accounted for',
    `${slots}, times as (
       select job, schedule, at, lead(at, 1, 'infinity') over (partition by job order by at) as until
       from public.edit where schedule is not null
     )
     select j.name as job, t.schedule, s.slot
     from times as t join pgfresh.scheduled_jobs as j on j.id = t.job join pgfresh_engine.job_cursor as c on c.job_id = j.id
     cross join lateral (
       select generate_series(min(r.slot), case t.until when 'infinity' then c.slot - interval '1 minute' else max(r.slot) end, interval '1 minute') as slot
       from rows as r where r.job_id = j.id and r.triggered_by <> 'backfill' and r.slot >= t.at and r.slot < t.until
     ) as s
     where public.is_slot(t.schedule, s.slot) and not exists (
       select from rows as r where r.job_id = j.id and r.slot = s.slot and r.triggered_by <> 'backfill')`,
  ),
  none(
    'what was done is what was recorded',
    `select j.name as job, n.succeeded, n.effects from pgfresh.scheduled_jobs as j cross join lateral (
       select (select count(*) from pgfresh.scheduled_job_runs as r where r.job_id = j.id and r.state = 'succeeded') as succeeded,
         (select count(*) from public.effect as e where e.job = (j.params ->> 'n')::int) as effects
     ) as n where j.kind = 'sql' and n.succeeded <> n.effects`,
  ),
  none(
    'nothing stranded: due',
    `select j.name as job, c.due_at from pgfresh.scheduled_jobs as j join pgfresh_engine.job_cursor as c on c.job_id = j.id
     where c.due_at < clock_timestamp() - make_interval(secs => 10 + $1::float8 / 1000)`,
    ({ stall }) => [stall.recent],
  ),
  none(
    'nothing stranded: waiting',
    `select j.name as job, r.id, r.run_at from pgfresh.scheduled_job_runs as r join pgfresh.scheduled_jobs as j on j.id = r.job_id
     where r.state = 'waiting' and r.run_at < clock_timestamp() - make_interval(secs => 10 + $1::float8 / 1000)`,
    ({ stall }) => [stall.recent],
  ),
];
