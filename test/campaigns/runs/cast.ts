/** Runs of users' jobs at the same time, per process. */
export const places = 12;
/**
 * The connections that a process may have, by their names: three pools, the old lease and the new one, the listener. One
 * handler may use three more than its own; functions that go on are ended by further ones.
 */
export const mostConnections: Readonly<Record<string, number>> = {
  'pgfresh scheduler': 10,
  'pgfresh handlers': places + 3,
  'pgfresh jobs': 3 * places,
  'pgfresh lease': 2,
  'pgfresh listen': 2,
};
const jobCount = 200;

/** What a scheduler process says on its stdout. */
export type Line =
  | { readonly type: 'started' }
  | { readonly type: 'begin' | 'end'; readonly span: number; readonly job: string; readonly at: number }
  | { readonly type: 'event'; readonly name: string };

/** The class of the advisory locks by which functions see each other. */
export const lockClass = 1818;

/**
 * Functions hold a lock of their job while they run. One that finds it taken leaves the number of the job in a sequence,
 * which no rollback undoes. A commit shows before its locks are released, hence the second try.
 */
export const schema = `
create table public.effect (job int not null);
create sequence public.twice;
create function public.enter(params jsonb) returns void language plpgsql as $$
begin
  if pg_try_advisory_xact_lock(${lockClass}, (params ->> 'n')::int) then return; end if;
  perform pg_sleep(0.3);
  if not pg_try_advisory_xact_lock(${lockClass}, (params ->> 'n')::int) then
    perform setval('public.twice', (params ->> 'n')::int);
  end if;
end $$;
create function public.good(params jsonb) returns jsonb language sql as $$
  insert into public.effect values ((params ->> 'n')::int);
  select jsonb_build_object('success', true, 'message', 'good');
$$;
create function public.works(params jsonb) returns jsonb language plpgsql as $$
begin perform public.enter(params); return public.good(params); end $$;
create function public.dozes(params jsonb) returns jsonb language plpgsql as $$
begin perform public.enter(params); perform pg_sleep(0.3); return public.good(params); end $$;
create function public.raises(params jsonb) returns jsonb language plpgsql as $$
begin perform public.enter(params); raise exception 'raised'; end $$;
create function public.sleeps(params jsonb) returns jsonb language plpgsql as $$
begin perform public.enter(params); perform pg_sleep(60); return public.good(params); end $$;
create function public.loops(params jsonb) returns jsonb language plpgsql as $$
begin perform public.enter(params); loop end loop; end $$;
create function public.swallows(params jsonb) returns jsonb language plpgsql as $$
begin
  perform public.enter(params);
  loop
    begin perform pg_sleep(0.05); exception when query_canceled then null; end;
  end loop;
end $$;
-- What jobs were told: each limit, and each schedule that began to hold.
create table public.edit (job int not null, at timestamptz not null, timeout interval not null, schedule text);
create function public.note_edit() returns trigger language plpgsql as $$
begin
  insert into public.edit values (new.id, clock_timestamp(), new.timeout, case when tg_op = 'INSERT'
    or (new.schedule, new.timezone) is distinct from (old.schedule, old.timezone) then new.schedule end);
  return null;
end $$;
create trigger note_edit after insert or update of schedule, timezone, timeout on pgfresh.scheduled_jobs
  for each row execute function public.note_edit();
-- The limit of what began then, in milliseconds. Beside an edit it may be either.
create function public.limit_ms(p_job text, p_at timestamptz) returns float8 language sql stable as $$
  select 1000 * extract(epoch from max(e.timeout))::float8
  from (
    select timeout, at, lead(at, 1, 'infinity') over (order by at) as until
    from public.edit where job = (select id from pgfresh.scheduled_jobs where name = p_job)
  ) as e
  where e.at < p_at + interval '2 s' and e.until > p_at - interval '2 s'
$$;
-- The schedules of the campaign mean the same in its time zones, which are whole or half hours apart.
create function public.is_slot(p_schedule text, p_slot timestamptz) returns boolean language sql immutable as $$
  select case p_schedule
    when '* * * * *' then true
    when '*/2 * * * *' then extract(minute from p_slot)::int % 2 = 0
    when '1-59/2 * * * *' then extract(minute from p_slot)::int % 2 = 1
  end
$$;`;

/** What an operator may change in a job, while it runs or not. */
export const edits = [
  `overlap = case overlap when 'skip' then 'queue' else 'skip' end`,
  `catch_up = case catch_up when 'once' then 'all' else 'once' end`,
  'retries = (retries + 1) % 4',
  `jitter = case when schedule is null then jitter else '3 s' end`,
  `every_max = every_max + interval '1 s'`,
  `timeout = case when timeout > interval '10 s' then timeout when timeout < interval '3 s' then timeout + interval '1 s' else interval '1 s' end`,
  `schedule = case schedule when '* * * * *' then '*/2 * * * *' when '*/2 * * * *' then '1-59/2 * * * *' when '1-59/2 * * * *' then '* * * * *' end`,
  `timezone = case when schedule is null then timezone when timezone = 'UTC' then 'Asia/Kolkata' when timezone = 'Asia/Kolkata' then 'America/New_York' else 'UTC' end`,
  'enabled = not enabled',
];

const handlers = ['counts', 'naps', 'counts', 'dawdles', 'throwsNul', 'leavesOpen', 'hangs', 'logs', 'floods', 'emoji'];
const good = ['works', 'dozes', 'works', 'dozes', 'works', 'dozes', 'works'];
const functions = [...good, ...good, 'raises', 'raises', 'sleeps', 'sleeps', 'swallows', 'loops'];

/** A third at every full minute, the others every few seconds; those that misbehave less often. */
export const registration = {
  text: `
    insert into pgfresh.scheduled_jobs
      (name, kind, function_name, schedule, every_min, every_max, params, timeout, retries, retry_base, overlap, catch_up)
    select 'job-' || n, case n % 2 when 0 then 'handler' else 'sql' end, w.work,
      case when n % 3 = 0 then '* * * * *' end,
      case when n % 3 > 0 then make_interval(secs => case when w.is_good then 4 else 15 end) end,
      case when n % 3 > 0 then make_interval(secs => case when w.is_good then 9 else 40 end) end,
      jsonb_build_object('n', n), make_interval(secs => case w.work when 'dawdles' then 40 else 1 + n % 2 end), n % 3, '1 s',
      case n / 2 % 2 when 0 then 'skip' else 'queue' end, (array['once', 'skip', 'all'])[1 + n / 2 % 3]
    from generate_series(1, $1::int) as n cross join lateral (
      select work, work in ('counts', 'naps', 'works', 'dozes', 'dawdles') as is_good
      from (select case n % 2 when 0 then ($2::text[])[1 + n / 2 % 10] else ($3::text[])[1 + n / 2 % 20] end) as x(work)
    ) as w`,
  values: [jobCount, handlers, functions] as unknown[],
};
