create or replace function pgfresh_engine.serve_types(
  p_worker bigint, p_types int[], p_fetchers text[], p_limited_to text[] default null, p_api_keys jsonb default '{}')
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_types is null or p_fetchers is null or array_position(p_types, null) is not null
      or array_position(p_fetchers, null) is not null or array_position(p_limited_to, null) is not null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_types and p_fetchers must be arrays, with no null in them',
      'Pass the numbers of the data types that the worker refreshes, and the names of its fetchers.');
  end if;
  if (jsonb_typeof(p_api_keys) = 'object' and not jsonb_path_exists(p_api_keys, '$.* ? (!(@ >= 1 && @ <= 100))'))
      is not true then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_api_keys must be an object of numbers from 1 to 100',
      'Pass how many API keys the worker has, by the name of the source: {"market": 2}.');
  end if;
  insert into pgfresh_engine.worker_service as s (worker, types, fetchers, limited_to, api_keys)
  select w.id, p_types, p_fetchers, p_limited_to, p_api_keys
  from pgfresh_engine.process as w
  where w.id = p_worker and w.kind = 'worker'
  on conflict (worker) do update
  set types = excluded.types, fetchers = excluded.fetchers, limited_to = excluded.limited_to,
    api_keys = excluded.api_keys
  where (s.types, s.fetchers, s.limited_to, s.api_keys)
    is distinct from (excluded.types, excluded.fetchers, excluded.limited_to, excluded.api_keys);
end
$$;
comment on function pgfresh_engine.serve_types(bigint, int[], text[], text[], jsonb) is
  'Says which data types a worker refreshes, by which fetchers, to which data types it is limited, '
  'and how many API keys it has, by source: it claims no job for another key. '
  'Called when that changes, so that explain_pair knows of a job which no worker takes.';
grant execute on function pgfresh_engine.serve_types(bigint, int[], text[], text[], jsonb) to pgfresh_worker;

-- Edit distance. The names are few and short, so this need not be fast.
create or replace function pgfresh_engine.near_miss(p_word text, p_names text[]) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_name text;
  v_best text;
  v_least int := greatest(2, length(p_word) / 3) + 1;
  v_before int[];
  v_row int[];
begin
  foreach v_name in array p_names loop
    continue when abs(length(v_name) - length(p_word)) >= v_least;
    v_before := array(select i from generate_series(0, length(v_name)) as i);
    for i in 1..length(p_word) loop
      v_row := array[i];
      for j in 1..length(v_name) loop
        v_row := v_row || least(
          v_before[j + 1] + 1, v_row[j] + 1,
          v_before[j] + (lower(substr(p_word, i, 1)) <> lower(substr(v_name, j, 1)))::int);
      end loop;
      v_before := v_row;
    end loop;
    if v_before[length(v_name) + 1] < v_least then
      v_least := v_before[length(v_name) + 1];
      v_best := v_name;
    end if;
  end loop;
  return v_best;
end
$$;
comment on function pgfresh_engine.near_miss(text, text[]) is
  'The name that a mistyped word most likely meant; null if none is close enough.';

create or replace function pgfresh_engine.worker_obstacle(p_type pgfresh.data_type_registry, p_now timestamptz)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_refused text;
begin
  -- SQL clients that claim directly do not report what they serve.
  if exists (
      select from pgfresh_engine.process as w
      left join pgfresh_engine.worker_service as s on s.worker = w.id
      where w.kind = 'worker' and w.lease_until > p_now
        and (s.worker is null or p_type.type_id = any (s.types))
    ) or exists (
      select from pgfresh_engine.worker_name as n where not n.has_lease and n.last_seen_at > p_now - interval '2 hours'
    ) then
    return null;
  end if;
  if not exists (select from pgfresh_engine.process as w where w.kind = 'worker' and w.lease_until > p_now) then
    return 'No worker is running: start one with "pgfresh run --roles worker".';
  end if;
  if exists (
    select from pgfresh_engine.process as w
    join pgfresh_engine.worker_service as s on s.worker = w.id
    where w.lease_until > p_now and p_type.fetcher = any (s.fetchers)
      and (s.limited_to is null or p_type.data_type = any (s.limited_to))
  ) then
    v_refused := (
      select w.message from pgfresh.warnings as w where w.code = 'type_unwritable' and w.subject = p_type.data_type);
    -- Without a reason, the worker has not read the registry since the row was written, which takes some seconds.
    -- The reason begins with the name of the data type.
    return 'The workers that run do not serve ' || rtrim(v_refused, '.') || '.';
  end if;
  if exists (
    select from pgfresh_engine.process as w
    join pgfresh_engine.worker_service as s on s.worker = w.id
    where w.lease_until > p_now and p_type.fetcher = any (s.fetchers)
  ) then
    return format('The workers that run are limited to other data types than %s: '
      'start one with "pgfresh run --roles worker --types %1$s".', p_type.data_type);
  end if;
  return format('No worker that runs has the fetcher %s%s',
    p_type.fetcher,
    coalesce(
      '; did you mean ' || pgfresh_engine.near_miss(p_type.fetcher, array(
        select distinct f
        from pgfresh_engine.process as w
        join pgfresh_engine.worker_service as s on s.worker = w.id
        cross join unnest(s.fetchers) as f
        where w.lease_until > p_now
        order by f
      )) || '?',
      '.'));
end
$$;
comment on function pgfresh_engine.worker_obstacle(pgfresh.data_type_registry, timestamptz) is
  'Why no worker takes the jobs of a data type, as a sentence; null if one does. A part of explain_pair.';

create or replace function pgfresh_engine.unserved_types()
returns table (data_type text, problem text, workers boolean, wanted boolean)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  select u.data_type, u.problem,
    exists (select from pgfresh_engine.process as w where w.kind = 'worker' and w.lease_until > u.now),
    u.refresh_strategy = 'scheduled'
      or exists (select from pgfresh_engine.pairs as p where p.type_id = u.type_id and p.demanded)
  from (
    select r.type_id, r.data_type, r.refresh_strategy, pgfresh_engine.worker_obstacle(r, c.now) as problem, c.now
    from pgfresh.data_type_registry as r
    cross join (select pgfresh.clock() as now) as c
  ) as u
  where u.problem is not null
  order by u.data_type
$$;
comment on function pgfresh_engine.unserved_types() is
  'Data types whose jobs no worker takes, and why; whether any worker runs, '
  'and whether people look at the type or a schedule refreshes it.';
grant execute on function pgfresh_engine.unserved_types() to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator;

create or replace function pgfresh_engine.warn_of_unserved_types() returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type record;
  v_count int := 0;
begin
  for v_type in select * from pgfresh_engine.unserved_types() as u where u.wanted loop
    v_count := v_count + 1;
    if not v_type.workers then
      perform pgfresh_engine.warn('no_worker', 'all data types', v_type.problem,
        'Start a worker with "pgfresh run --roles worker"; until then nothing is refreshed.');
      exit;
    end if;
    perform pgfresh_engine.warn('no_worker', v_type.data_type, v_type.problem,
      'Correct the fetcher of the data type, or start a worker whose configuration has it.');
  end loop;
  return v_count;
end
$$;
comment on function pgfresh_engine.warn_of_unserved_types() is
  'Warns of data types that people look at, or that have a schedule, and that no worker refreshes. '
  'A part of the sweep.';
grant execute on function pgfresh_engine.warn_of_unserved_types() to pgfresh_planner;
