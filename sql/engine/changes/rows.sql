create or replace function pgfresh_engine.version_of(p_snapshot pg_snapshot) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select e.epoch
    || '.' || lpad(to_hex(pg_snapshot_xmax(p_snapshot)::text::bigint), 12, '0')
    || '.' || lpad(to_hex(65535 - least(65535, (select count(*) from pg_snapshot_xip(p_snapshot)))), 4, '0')
  from pgfresh_engine.change_epoch as e
$$;
comment on function pgfresh_engine.version_of(pg_snapshot) is
  'A snapshot as a text that is greater than that of every earlier one, byte by byte: '
  'a later snapshot has a higher end, or the same one and fewer transactions that still run.';

create or replace function pgfresh_engine.ask_rows(p_type_id int, p_keys text[])
returns table (key text, rows text, fetched_at timestamptz, ttl interval)
-- Stable, so that it reads by the snapshot of the statement that calls it.
language plpgsql stable security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
as $$
begin
  perform set_config('transaction_read_only', 'on', true);
  return query execute format('select r.key, r.rows, r.fetched_at, r.ttl from pgfresh_engine.rows_%s($1) as r',
    p_type_id)
    using p_keys;
  perform pgfresh_engine.clear_leftovers(pg_catalog.current_setting('search_path'));
-- Never raised. It makes this a subtransaction, after which the transaction may write again.
exception when sqlstate 'PGF00' then raise;
end
$$;
comment on function pgfresh_engine.ask_rows(int, text[]) is 'Reads the rows of pairs of a data type as the evaluator.';
alter function pgfresh_engine.ask_rows(int, text[]) owner to pgfresh_evaluator;
grant execute on function pgfresh_engine.ask_rows(int, text[]) to current_user;

create or replace function pgfresh_engine.require_readable(p_type_id int, p_keys text[])
returns pgfresh.data_type_registry
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry;
begin
  perform pgfresh_engine.require_primary();
  select * into v_type from pgfresh.data_type_registry where type_id = p_type_id;
  if not found then
    perform pgfresh_engine.refuse('PGF_TYPE_UNKNOWN',
      format('there is no data type with the number %s', coalesce(p_type_id::text, 'null')),
      'The known ones: select type_id, data_type from pgfresh.data_type_registry.');
  end if;
  if p_keys is null or array_position(p_keys, null) is not null or cardinality(p_keys) > 10000 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_keys must be an array of at most 10000 keys, with no null in it',
      'Pass the keys as want_pairs returned them.');
  end if;
  if not exists (select from pgfresh_engine.change_epoch) then
    -- A restored database starts later than the one it was dumped from. The timeline grows with every failover, and the
    -- part of the WAL that is on disk survives a crash.
    insert into pgfresh_engine.change_epoch (epoch)
    select lpad(to_hex(extract(epoch from d.since)::bigint), 10, '0')
      || '.' || lpad(lower(ltrim(left(pg_walfile_name(pg_current_wal_lsn()), 8), '0')), 6, '0')
      || '.' || lpad(to_hex((pg_current_wal_flush_lsn() - '0/0')::bigint), 14, '0')
    from pgfresh_engine.database_identity as d
    on conflict do nothing;
  end if;
  return v_type;
end
$$;
comment on function pgfresh_engine.require_readable(int, text[]) is
  'The data type of pairs that are to be read; refuses what cannot be read. Begins the epoch of versions.';

create or replace function pgfresh_engine.read_pairs(p_type_id int, p_keys text[])
returns table (
  version text, snapshot text, key text, rows text, fetched_at timestamptz, stale_at timestamptz,
  source_at timestamptz, state text, activity text, reason text, failing boolean, as_of timestamptz
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
-- Formats times in the rows the same way for every session.
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
  v_type pgfresh.data_type_registry := pgfresh_engine.require_readable(p_type_id, p_keys);
  v_now timestamptz := pgfresh.clock();
  v_source record;
  v_obstacle record;
begin
  if v_type.visibility <> 'shared' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('the rows of %s are not for everybody', v_type.data_type),
      'Read them as the user who looks, with read_pairs_as.');
  end if;
  select case when b.paused_until > v_now then 'paused' end as reason,
    case when b.paused_until > v_now then b.paused_until end as until,
    -- What other jobs wait for while one job probes the source.
    case when s.breaker_opened_at is not null then 'breaker' when b.opened_at is not null then 'paused' end as probed,
    not s.enabled or s.paused_until > v_now or s.quota_bytes is not null
      or exists (select from pgfresh.spending_stop) as may_be_held,
    not s.enabled or s.paused_until = 'infinity' as is_endless
  into v_source
  from pgfresh.sources as s
  left join pgfresh_engine.breaker as b on b.type_id = v_type.type_id
  where s.id = v_type.source_id;
  -- Nearly always no obstacle holds the source, as the row above shows.
  if v_source.may_be_held then
    select o.reason, o.until into v_obstacle from pgfresh_engine.source_obstacle(v_type.source_id, v_now) as o;
    if found then
      v_source.reason := v_obstacle.reason;
      -- For an obstacle without an end, source_obstacle says when the planner looks again.
      v_source.until := case
        when v_obstacle.reason = 'stopped' or v_source.is_endless then 'infinity'
        else v_obstacle.until
      end;
    end if;
  end if;
  -- It lasts until a worker starts, so it outlasts obstacles that end by themselves.
  if v_source.until is distinct from 'infinity'
    and pgfresh_engine.worker_obstacle(v_type, v_now) is not null then
    v_source.reason := 'no_worker';
    v_source.until := 'infinity';
  end if;
  -- One statement, whose snapshot is the version of all that it reads. The version is computed once (offset 0), and
  -- each pair looked up separately: a join could read them all.
  return query
    select s.version, s.snapshot, a.key, '[' || coalesce(a.rows, '') || ']', a.fetched_at,
      case when t.state = 'empty' then (p.pair).empty_at + coalesce(v_type.empty_ttl, v_type.ttl) else t.stale_at end,
      (p.pair).source_at, t.state, w.activity, w.reason,
      coalesce((p.pair).fails > 0 or j.retries > 0, false), s.as_of
    from (
      select pgfresh.clock() as as_of, pgfresh_engine.version_of(pg_current_snapshot()) as version,
        pg_current_snapshot()::text as snapshot
      offset 0
    ) as s
    cross join pgfresh_engine.ask_rows(p_type_id, p_keys) as a
    cross join lateral (
      select (select p from pgfresh_engine.pairs as p where p.type_id = p_type_id and p.key = a.key collate "C") as pair
      offset 0
    ) as p
    left join lateral (
      select j.state, j.run_at, j.retries from pgfresh_engine.job as j where j.id = (p.pair).job_id
    ) as j on true
    cross join lateral (
      select u.stale_at,
        pgfresh_engine.state_of(p.pair, a.rows is not null, a.fetched_at, u.stale_at,
          coalesce(v_type.empty_ttl, v_type.ttl), v_type.max_source_age, s.as_of) as state
      from (
        select case
          when a.rows is null then (p.pair).empty_at + coalesce(v_type.empty_ttl, v_type.ttl)
          -- As the planner recorded it, if this is the row it has seen.
          when a.fetched_at = (p.pair).row_at then (p.pair).stale_at
          when a.fetched_at is not null then least(a.fetched_at, '9999-12-31') + coalesce(a.ttl, v_type.ttl)
        end as stale_at
      ) as u
      offset 0
    ) as t
    cross join lateral pgfresh_engine.activity_of(p.pair, t.state, j.state, j.run_at,
      v_type.refresh_strategy = 'scheduled',
      coalesce(v_source.reason, case when j.state is not null then v_source.probed end),
      coalesce(v_source.until,
        case when j.state is not null and v_source.probed is not null then s.as_of + interval '10 seconds' end),
      s.as_of) as w
    where not pgfresh_engine.is_row_lost(p.pair, a.rows is not null, a.fetched_at)
      or pgfresh_engine.hasten(p_type_id, a.key, s.as_of) is not null;
end
$$;
comment on function pgfresh_engine.read_pairs(int, text[]) is
  'The rows and the state of pairs of a shared data type, read by one statement, with its version and its snapshot: '
  'when the row was fetched and goes stale, how old it is at the source, the state of the data, what happens with it '
  'and for what it waits, and whether its last refresh has failed. '
  'Versions are texts that compare byte by byte.';
grant execute on function pgfresh_engine.read_pairs(int, text[]) to pgfresh_gateway;
