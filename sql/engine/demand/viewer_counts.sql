/*
  How demand reaches pairs and their jobs: viewer counts are summed, pairs without viewers cool down, and jobs that only
  they wanted are cancelled. Parts of the tick. Nothing here waits: a locked pair or job is left to a later tick.
*/
create or replace function pgfresh_engine.fold_demand(p_now timestamptz) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
-- Access pairs and changes by key, whatever the statistics say:
-- both tables may have been filled a moment ago.
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_waiting boolean := exists (select from pgfresh_engine.demand_waiting);
  v_noted record;
  v_locked record;
  v_new record;
  v_types int[] := '{}'; v_keys text[] := '{}'; v_deltas bigint[] := '{}';
  v_folded record;
begin
  if not v_waiting and not exists (select from pgfresh_engine.demand_change) then
    return 0;
  end if;
  with taken as (
    delete from pgfresh_engine.demand_change as c
    where c.id = any (array(select c.id from pgfresh_engine.demand_change as c order by c.id limit 5000))
    returning c.type_id, c.key, c.delta
  )
  select array_agg(t.type_id) as types, array_agg(t.key) as keys, array_agg(t.delta) as deltas,
    array_agg(t.tries) as tries
  into v_noted
  from (select t.type_id, t.key, sum(t.delta) as delta, 0 as tries from taken as t group by t.type_id, t.key) as t;
  if v_waiting then
    with again as (
      delete from pgfresh_engine.demand_waiting as w
      using (
        (
          select n.type_id, n.key
          from pgfresh_engine.demand_waiting as n
          where n.next_at <= p_now
          order by n.next_at
          limit 1000
        )
        union
        -- All changes of a pair at once: viewers must not leave before they came.
        select n.type_id, n.key from unnest(v_noted.types, v_noted.keys) as n(type_id, key)
      ) as n
      where w.type_id = n.type_id and w.key = n.key
      returning w.type_id, w.key, w.delta, w.tries
    )
    select array_agg(t.type_id) as types, array_agg(t.key) as keys, array_agg(t.delta) as deltas,
      array_agg(t.tries) as tries
    into v_noted
    from (
      select t.type_id, t.key, sum(t.delta)::bigint as delta, max(t.tries) as tries
      from (
        select a.type_id, a.key, a.delta, a.tries from again as a
        union all
        select n.type_id, n.key, n.delta, n.tries
        from unnest(v_noted.types, v_noted.keys, v_noted.deltas, v_noted.tries) as n(type_id, key, delta, tries)
      ) as t
      group by t.type_id, t.key
    ) as t;
  end if;
  -- Missing pairs are added, and then locked too.
  for v_round in 1..2 loop
    exit when v_noted.types is null;
    with locked as (
      select n.*, p.is_ours
      from unnest(v_noted.types, v_noted.keys, v_noted.deltas, v_noted.tries) as n(type_id, key, delta, tries)
      left join lateral (
        select true as is_ours
        from pgfresh_engine.pairs as p
        where p.type_id = n.type_id and p.key = n.key
        for update skip locked
      ) as p on true
    )
    select array_agg(l.type_id) filter (where l.is_ours) as types, array_agg(l.key) filter (where l.is_ours) as keys,
      array_agg(l.delta) filter (where l.is_ours) as deltas,
      array_agg(l.type_id) filter (where l.is_ours is null) as left_types,
      array_agg(l.key) filter (where l.is_ours is null) as left_keys,
      array_agg(l.delta) filter (where l.is_ours is null) as left_deltas,
      array_agg(l.tries) filter (where l.is_ours is null) as left_tries
    into v_locked
    from locked as l;
    v_types := v_types || v_locked.types;
    v_keys := v_keys || v_locked.keys;
    v_deltas := v_deltas || v_locked.deltas;
    select v_locked.left_types as types, v_locked.left_keys as keys, v_locked.left_deltas as deltas,
      v_locked.left_tries as tries
    into v_noted;
    exit when v_round = 2;
    -- Smallest first: a type with many locked pairs does not delay the others.
    for v_new in
      select n.type_id, array_agg(n.key) as keys
      from unnest(v_noted.types, v_noted.keys, v_noted.deltas) as n(type_id, key, delta)
      where n.delta > 0
        and (select true from pgfresh_engine.pairs as p where p.type_id = n.type_id and p.key = n.key) is null
      group by n.type_id
      order by count(*), random()
    loop
      perform pgfresh_engine.make_pairs(v_new.type_id, v_new.keys);
      exit when clock_timestamp() > v_began + interval '100 milliseconds';
    end loop;
  end loop;
  insert into pgfresh_engine.demand_waiting (type_id, key, delta, tries, next_at)
  select n.type_id, n.key, n.delta, n.tries + 1, p_now + interval '1 second' * least(n.tries + 1, 5)
  from unnest(v_noted.types, v_noted.keys, v_noted.deltas, v_noted.tries) as n(type_id, key, delta, tries)
  where (select true from pgfresh.data_type_registry as r where r.type_id = n.type_id)
    and (n.delta > 0
      -- A pair that does not exist has no viewers, so none can leave it.
      or (n.delta < 0 and (select true from pgfresh_engine.pairs as p where p.type_id = n.type_id and p.key = n.key)));
  with folded as (
    update pgfresh_engine.pairs as p
    set viewers = least(greatest(p.viewers + net.delta, 0), 2147483647),
      demanded = p.demanded or (p.viewers + net.delta > 0 and p.unlisted_at is null),
      unlisted_at = case when p.viewers + net.delta > 0 then p.unlisted_at end,
      warm_until = case
        when p.viewers + net.delta > 0 then null
        when p.viewers > 0 then p_now + interval '15 seconds'
        else p.warm_until
      end,
      due_at = case
        when not p.demanded and p.viewers + net.delta > 0 and p.unlisted_at is null and p.job_id is null then p_now
        else p.due_at
      end
    from unnest(v_types, v_keys, v_deltas) as net(type_id, key, delta)
    where p.type_id = net.type_id and p.key = net.key
    returning p.type_id, p.key, p.job_id, p.demanded, p.due_at, net.delta
  ), wanted as (
    insert into pgfresh_engine.due (due_at, type_id, key)
    select p_now, f.type_id, f.key from folded as f where f.demanded and f.due_at = p_now
    on conflict do nothing
  )
  select count(*)::int as count,
    array_agg(f.job_id order by f.job_id) filter (where f.job_id is not null and f.delta > 0 and f.demanded) as jobs
  into v_folded
  from folded as f;
  if v_folded.jobs is not null then
    perform pgfresh_engine.raise_jobs(v_folded.jobs, p_now);
  end if;
  return v_folded.count;
end
$$;
comment on function pgfresh_engine.fold_demand(timestamptz) is
  'Adds the changes of demand to the pairs, at most those of 5000 entries, and of 1000 pairs that were locked before. '
  'A part of the planner.';

/*
  A waiting job whose time no viewer has set: viewers wait for it no longer than for a job of their own.
  One that was never tried runs when its row is stale. One that failed runs after the delay of viewed jobs;
  a longer delay is cut once, so that viewers who come and go do not shorten it again and again. One that was put back
  keeps waiting for the same reason.
*/
create or replace function pgfresh_engine.raise_jobs(p_ids bigint[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_ready boolean;
begin
  with raised as (
    update pgfresh_engine.job as j
    set priority = w.priority, band = w.band, missing = w.missing, run_at = w.run_at,
      lane = pgfresh_engine.lane_of(w.band, w.missing, j.est_bytes),
      state = case when w.run_at <= p_now then 'r' else j.state end
    from (
      select waiting.id, greatest(waiting.priority, waiting.viewed_priority) as priority,
        pgfresh_engine.band_of(greatest(waiting.priority, waiting.viewed_priority)) as band,
        case
          when waiting.state = 'r' then waiting.run_at
          when waiting.attempt = 0 then least(waiting.run_at, waiting.stale_at)
          when waiting.retries > 0 and waiting.run_at > p_now + waiting.viewed_delay
            then p_now + waiting.viewed_delay * (0.5 + random() / 2)
          else waiting.run_at
        end as run_at,
        waiting.missing
      from unnest(p_ids) as raised(id)
      cross join lateral (
        select j.id, j.priority, j.state, j.attempt, j.retries, j.run_at,
          pgfresh_engine.longest_retry_delay(greatest(j.retries - 1, 0), 1) as viewed_delay,
          v.viewed_priority, v.stale_at, v.missing
        from pgfresh_engine.job as j
        cross join lateral (
          select pgfresh_engine.priority_of(p.viewers, r.ui_threshold, r.background_priority) as viewed_priority,
            case when p.row_at is not null and p.stale_at > p_now then p.stale_at else p_now end as stale_at,
            -- It may have been queued while the pair had no viewers, and did not count as missing then.
            j.missing or (p.demanded and p.row_at is null and p.seen and p.empty_at is null) as missing
          from pgfresh_engine.pairs as p
          join pgfresh.data_type_registry as r on r.type_id = p.type_id
          where p.type_id = j.type_id and p.key = j.key
        ) as v
        where j.id = raised.id and j.state <> 'x'
          and (j.priority < v.viewed_priority or j.state = 'w' or v.missing <> j.missing)
        for update of j skip locked
      ) as waiting
    ) as w
    where j.id = w.id and (j.priority <> w.priority or j.run_at <> w.run_at or j.missing <> w.missing)
    returning j.state = 'r' as is_ready
  )
  select bool_or(r.is_ready) into v_ready from raised as r;
  if v_ready then
    perform pgfresh_engine.wake_workers();
  end if;
end
$$;
comment on function pgfresh_engine.raise_jobs(bigint[], timestamptz) is
  'Gives jobs that wait the priority and the lane that the viewers of their pairs make, and ends waits that viewers '
  'would not have. A part of fold_demand.';

create or replace function pgfresh_engine.cool_down(p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_cooled record;
  v_jobs record;
begin
  -- Materialized: a subquery could run once per pair, and find 2000 others each time.
  with cold as materialized (
    select type_id, key, due_at, demanded
    from pgfresh_engine.pairs
    where warm_until <= p_now
    order by warm_until
    limit 2000 for update skip locked
  ), cooled as (
    update pgfresh_engine.pairs as p
    set demanded = false, warm_until = null, due_at = 'infinity',
      unviewed_since = case when cold.demanded then p_now else p.unviewed_since end
    from cold
    where p.type_id = cold.type_id and p.key = cold.key
    returning cold.due_at, cold.type_id, cold.key, p.job_id
  ), gone as (
    delete from pgfresh_engine.due as d using cooled as c where d.due_at = c.due_at and d.type_id = c.type_id
      and d.key = c.key
  )
  select array_agg(c.type_id) as types, array_agg(c.key) as keys
  into v_cooled
  from cooled as c
  where c.job_id is not null or exists (select from pgfresh_engine.type_dependency as d where d.type_id = c.type_id);
  if v_cooled.types is null then
    return;
  end if;
  -- A job requested by a schedule, an application or an operator stays, with the requested priority. So does one that a
  -- viewed pair of another data type needs. Prerequisites of a cooled pair are cancelled with it.
  -- A running job is not stopped; its pair is checked here again, in case the job is retried.
  with recursive left_pair (type_id, key) as (
    select p.type_id, p.key from unnest(v_cooled.types, v_cooled.keys) as p(type_id, key)
    union
    select d.needs_id, l.key from left_pair as l join pgfresh_engine.type_dependency as d on d.type_id = l.type_id
  ), unviewed as (
    select l.type_id, l.key, p.job_id
    from left_pair as l
    cross join lateral (
      select p.job_id
      from pgfresh_engine.pairs as p
      where p.type_id = l.type_id and p.key = l.key and p.job_id is not null and not p.demanded
      for update skip locked
    ) as p
    where not exists (
      with recursive dependent (type_id) as (
        select d.type_id from pgfresh_engine.type_dependency as d where d.needs_id = l.type_id
        union
        select d.type_id from dependent as n join pgfresh_engine.type_dependency as d on d.needs_id = n.type_id
      )
      select from dependent as n
      join pgfresh_engine.pairs as p on p.type_id = n.type_id and p.key = l.key
      where p.demanded
    )
  ), waiting as (
    select u.type_id, u.key, j.id, j.asked
    from unviewed as u
    left join lateral (
      select j.id, j.asked from pgfresh_engine.job as j where j.id = u.job_id and j.state <> 'x' for update skip locked
    ) as j on true
  ), lowered as (
    update pgfresh_engine.job as j
    set priority = w.asked, band = pgfresh_engine.band_of(w.asked), missing = false,
      lane = pgfresh_engine.lane_of(pgfresh_engine.band_of(w.asked), false, j.est_bytes)
    from waiting as w
    where j.id = w.id and (j.priority > w.asked or (j.missing and w.asked is not null))
  )
  select array_agg(w.id) filter (where w.id is not null and w.asked is null) as unwanted,
    array_agg(w.type_id) filter (where w.id is null) as busy_types,
    array_agg(w.key) filter (where w.id is null) as busy_keys
  into v_jobs
  from waiting as w;
  update pgfresh_engine.pairs as p
  set warm_until = p_now + interval '15 seconds'
  from unnest(v_jobs.busy_types, v_jobs.busy_keys) as b(type_id, key)
  where p.type_id = b.type_id and p.key = b.key;
  perform pgfresh_engine.drop_waiting_jobs(v_jobs.unwanted, 'no viewer is left', p_now);
end
$$;
comment on function pgfresh_engine.cool_down(timestamptz) is
  'Lets go of pairs that have had no viewer for 15 s, and of the jobs that only their viewers wanted. '
  'A part of the planner.';

/*
  Unlike an operator's cancel, this says nothing about the pair: it gets no backoff of a TTL, and a viewer who comes
  back is served at once. Only the backoff after a failure continues. None of these jobs runs, so nothing is settled.
*/
create or replace function pgfresh_engine.drop_waiting_jobs(p_ids bigint[], p_reason text, p_now timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
begin
  if coalesce(cardinality(p_ids), 0) = 0 then
    return;
  end if;
  with gone as (
    delete from pgfresh_engine.job as j where j.id = any (p_ids) and j.state <> 'x' returning j.*
  ), history as (
    insert into pgfresh_engine.history_other (
      id, ended_at, created_at, bytes, calls, type_id, source_id, priority, attempt, retries, lost,
      status, outcome, key, error, metadata)
    select
      id, p_now, created_at, 0, 0, type_id, source_id, priority, attempt, retries, lost,
      'cancelled', 'cancelled', key, concat_ws('; before: ', p_reason, error), metadata
    from gone
  )
  update pgfresh_engine.pairs as p
  set last_job = g.id, job_id = null, next_ask_at = case when g.retries > 0 and g.state = 'w' then g.run_at end
  from gone as g
  where p.type_id = g.type_id and p.key = g.key and p.job_id = g.id;
end
$$;
comment on function pgfresh_engine.drop_waiting_jobs(bigint[], text, timestamptz) is
  'Cancels jobs that wait and are not wanted any more; their pairs must be locked.';

/*
  What is no longer a key is not demanded, however many viewers it has: its subscriptions and counts stay, so that
  leaving works as usual, and the pair is demanded again if the key comes back while it has viewers.
*/
create or replace function pgfresh_engine.revoke_pairs(p_type_id int, p_keys text[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_jobs bigint[];
begin
  with revoked as (
    update pgfresh_engine.pairs as p
    set demanded = false, warm_until = null, due_at = 'infinity', waits_for = null,
      unlisted_at = case when p.viewers > 0 then p_now end,
      unviewed_since = coalesce(p.unviewed_since, p_now)
    from (
      select l.key, l.due_at
      from pgfresh_engine.pairs as l
      where l.type_id = p_type_id and l.key = any (p_keys)
      for update skip locked
    ) as l
    where p.type_id = p_type_id and p.key = l.key
    returning l.due_at, p.key, p.job_id
  ), gone as (
    delete from pgfresh_engine.due as d using revoked as r
    where d.due_at = r.due_at and d.type_id = p_type_id and d.key = r.key
  )
  select array_agg(j.id)
  into v_jobs
  from revoked as r
  cross join lateral (
    select j.id from pgfresh_engine.job as j where j.id = r.job_id and j.state <> 'x' for update skip locked
  ) as j;
  perform pgfresh_engine.drop_waiting_jobs(v_jobs, 'its key is not listed any more', p_now);
end
$$;
comment on function pgfresh_engine.revoke_pairs(int, text[], timestamptz) is
  'Ends the demand of pairs whose keys are gone, and cancels their waiting jobs. A part of the planner.';

create or replace function pgfresh_engine.list_again(p_now timestamptz, p_types int[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_type record;
  v_gone text[];
  v_quarantined int[] := array(select q.type_id from pgfresh_engine.quarantined_types() as q);
begin
  for v_type in
    select r as registered, array_agg(u.key) as keys
    from (
      select p.type_id, p.key
      from pgfresh_engine.pairs as p
      where p.unlisted_at <= p_now - interval '5 seconds'
        and (p_types is null or p.type_id = any (p_types)) and p.type_id <> all (v_quarantined)
      order by p.unlisted_at
      limit 500
      for update skip locked
    ) as u
    join pgfresh.data_type_registry as r on r.type_id = u.type_id
    group by r
  loop
    v_gone := pgfresh_engine.unlisted_keys(v_type.registered, v_type.keys);
    with listed as (
      update pgfresh_engine.pairs as p
      set unlisted_at = null, demanded = true, unviewed_since = null,
        due_at = case when p.job_id is null then p_now else p.due_at end
      where p.type_id = (v_type.registered).type_id and p.key = any (v_type.keys) and p.key <> all (v_gone)
      returning p.type_id, p.key, p.due_at
    )
    insert into pgfresh_engine.due (due_at, type_id, key)
    select p_now, l.type_id, l.key from listed as l where l.due_at = p_now
    on conflict do nothing;
    update pgfresh_engine.pairs as p
    set unlisted_at = p_now
    where p.type_id = (v_type.registered).type_id and p.key = any (v_type.keys) and p.unlisted_at is not null;
  end loop;
end
$$;
comment on function pgfresh_engine.list_again(timestamptz, int[]) is
  'Asks every five seconds whether keys that were gone are back, as long as they have viewers: keys of all data '
  'types (null) or of some, and of none in quarantine. '
  'A part of the planner.';

/*
  Jobs that wait long, for instance for their source, are claimed without checking their pair again. And a job that was
  locked when its viewers came was not brought forward. A key table that uses up the statement's time affects only its
  own type, which comes last the next time.
*/
create or replace function pgfresh_engine.review_open_jobs(p_now timestamptz, p_limit int default 20000) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_after bigint := (select reviewed_job from pgfresh_engine.planner_state);
  v_last bigint := v_after;
  v_read int := 0;
  v_type record;
  v_keys text[];
  v_viewed bigint[];
  v_timed_out boolean := false;
  v_quarantined int[] := array(select q.type_id from pgfresh_engine.quarantined_types() as q);
begin
  for v_type in
    select r as registered, t.keys, t.last, t.count
    from (
      select j.type_id, array_agg(j.key) filter (where j.state <> 'x') as keys, max(j.id) as last,
        count(*)::int as count
      from (
        select j.id, j.type_id, j.key, j.state from pgfresh_engine.job as j
          where j.id > v_after order by j.id limit p_limit
      ) as j
      group by j.type_id
    ) as t
    left join pgfresh.data_type_registry as r on r.type_id = t.type_id
    left join pgfresh_engine.type_timeout as o on o.type_id = t.type_id
    order by o.last_at nulls first
  loop
    v_last := greatest(v_last, v_type.last);
    v_read := v_read + v_type.count;
    -- After a timeout, the statement no longer has a time limit.
    continue when v_timed_out or v_type.registered is null or v_type.keys is null
      or (v_type.registered).type_id = any (v_quarantined);
    begin
      v_keys := pgfresh_engine.unlisted_keys(v_type.registered, v_type.keys);
    exception when query_canceled then
      v_timed_out := true;
      perform pgfresh_engine.note_type_timeout((v_type.registered).type_id, 'cleanup', sqlerrm);
      continue;
    end;
    if v_keys <> '{}' then
      perform pgfresh_engine.revoke_pairs((v_type.registered).type_id, v_keys, p_now);
    end if;
  end loop;
  v_viewed := array(
    select j.id
    from pgfresh_engine.job as j
    join pgfresh_engine.pairs as p on p.type_id = j.type_id and p.key = j.key and p.demanded
    where j.id > v_after and j.id <= v_last and j.state = 'w' and j.run_at > p_now);
  if v_viewed <> '{}' then
    perform pgfresh_engine.raise_jobs(v_viewed, p_now);
  end if;
  v_last := case when v_read < p_limit then 0 else v_last end;
  update pgfresh_engine.planner_state set reviewed_job = v_last where reviewed_job <> v_last;
end
$$;
comment on function pgfresh_engine.review_open_jobs(timestamptz, int) is
  'Looks at the next open jobs: cancels those whose keys are gone, and brings forward those that wait '
  'while their pairs have viewers. A part of the cleanup.';
