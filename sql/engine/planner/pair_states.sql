/*
  The state of a pair has two axes. The data: fresh, stale, missing, empty, older_source. The activity: idle,
  refreshing, or waiting for a reason. These are the only definitions of both; everything that shows a pair calls them.
*/

/*
  Existence, time and expiry of the row are passed in as they are now. If existence is unknown, the planner's last check
  decides; a success is trusted until the next tick.
*/
create or replace function pgfresh_engine.state_of(
  p_pair pgfresh_engine.pairs, p_found boolean, p_at timestamptz, p_stale_at timestamptz, p_empty_ttl interval,
  p_max_source_age interval, p_now timestamptz)
returns text
-- Stable, because adding days to a time depends on the time zone: marked immutable, it would not be inlined,
-- and an overview of many pairs would take three times as long.
language sql stable parallel safe
as $$
  select case
    -- Another writer may have added a row since the source said that there is nothing.
    when p_pair.empty_at + p_empty_ttl > p_now
        and ((case when p_found is null then p_pair.row_at else p_at end) > p_pair.empty_at) is not true then 'empty'
    when not coalesce(p_found, p_pair.row_at is not null or (not p_pair.seen and p_pair.outcome <> 'empty'), false)
      then 'missing'
    when (case when p_found is null then p_pair.stale_at else p_stale_at end) > p_now
        and (p_pair.source_at + p_max_source_age <= p_now) is not true then 'fresh'
    when p_pair.outcome = 'older_source' then 'older_source'
    else 'stale'
  end
$$;
comment on function pgfresh_engine.state_of(
  pgfresh_engine.pairs, boolean, timestamptz, timestamptz, interval, interval, timestamptz) is
  'The state of the data of a pair: fresh (younger than its TTL by its own time, or confirmed by the source since), '
  'stale, missing (no row), empty (the source says that there is nothing), '
  'older_source (stale, and the source answers with something older).';
grant execute on function pgfresh_engine.state_of(
  pgfresh_engine.pairs, boolean, timestamptz, timestamptz, interval, interval, timestamptz)
to pgfresh_monitor, pgfresh_operator;

/*
  A reader that finds a row gone, or older than the planner knows, brings the pair's next check forward, from the next
  sweep to the next tick.
*/
create or replace function pgfresh_engine.is_row_lost(p_pair pgfresh_engine.pairs, p_found boolean, p_at timestamptz)
returns boolean
language sql immutable parallel safe
as $$
  select coalesce(
    p_pair.demanded and p_pair.seen and p_pair.job_id is null
      and case
        when p_found then coalesce(p_at, '-infinity') < p_pair.row_at
        else not p_found and p_pair.row_at is not null
      end,
    false)
$$;
comment on function pgfresh_engine.is_row_lost(pgfresh_engine.pairs, boolean, timestamptz) is
  'Whether the row of a viewed pair without a job is gone or older than the planner knows. A part of what shows pairs.';

-- Readers never wait: a pair that is locked, or that cannot be written here, is left to the sweep.
create or replace function pgfresh_engine.hasten(p_type_id int, p_key text, p_now timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_place tid;
begin
  if current_setting('transaction_read_only')::boolean then
    return false;
  end if;
  select p.ctid
  into v_place
  from pgfresh_engine.pairs as p
  where p.type_id = p_type_id and p.key = p_key and p.demanded and p.job_id is null
  for update skip locked;
  if not found then
    return false;
  end if;
  update pgfresh_engine.pairs as p set due_at = p_now where p.ctid = v_place and p.due_at > p_now;
  if found then
    insert into pgfresh_engine.due (due_at, type_id, key) values (p_now, p_type_id, p_key) on conflict do nothing;
  end if;
  return true;
end
$$;
comment on function pgfresh_engine.hasten(int, text, timestamptz) is
  'Lets the next tick look at a pair. Does not wait for locks; returns whether the tick will. '
  'A part of what shows pairs.';

/*
  Of several reasons, the one that lasts longest is given: a retry in 4 s means nothing while the source is paused for
  five minutes.
*/
create or replace function pgfresh_engine.activity_of(
  p_pair pgfresh_engine.pairs, p_state text, p_job_state "char", p_run_at timestamptz, p_scheduled boolean,
  p_source_reason text, p_source_until timestamptz, p_now timestamptz, out activity text, out reason text)
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select
    case
      when p_job_state = 'x' then 'refreshing'
      when w.reason is null then 'idle'
      else 'waiting'
    end,
    case when p_job_state = 'x' then null else w.reason end
  from (
    select case
      when p_job_state = 'w' then
        case when p_source_until > p_run_at then p_source_reason else 'retry' end
      when p_job_state is not null then coalesce(p_source_reason, 'queued')
      when p_pair.demanded is not true or p_state in ('fresh', 'empty') then null
      when p_pair.next_ask_at > p_now then
        case
          when p_source_until > p_pair.next_ask_at then p_source_reason
          when p_pair.fails > 0 and p_pair.outcome <> 'worker_lost' then 'refused'
          else 'retry'
        end
      when p_scheduled and p_state <> 'missing' then null
      when p_source_reason is not null then p_source_reason
      when p_pair.due_at > p_now and p_pair.waits_for is not null then p_pair.waits_for
      else 'due'
    end as reason
  ) as w
$$;
comment on function pgfresh_engine.activity_of(
  pgfresh_engine.pairs, text, "char", timestamptz, boolean, text, timestamptz, timestamptz) is
  'What happens with a pair: idle, refreshing (a worker has it), or waiting, and then for what.';
