/*
  The breaker. A source that fails five times in a row, or for which ten jobs were put off within ten minutes, is paused
  for five minutes; the numbers are settings of the source. Then one job at a time is let through: a success closes the
  breaker, a failure opens it for as long again. A probe that ends with neither, because its worker died, no longer
  counts once its job does not run.

  Jobs that fail at the same moment count as one piece of evidence. So the breaker opens only if a job fails that was
  claimed after the first failure of the series was recorded.
*/
create or replace function pgfresh_engine.note_failure(
  p_source_id int, p_ids bigint[], p_retries int, p_claimed_at timestamptz, p_error text, p_now timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources;
  v_most int;
  v_probe_failed boolean;
  v_in_a_row boolean; v_often boolean;
  v_why text;
begin
  select * into v_source from pgfresh.sources where id = p_source_id for no key update;
  v_most := 2 * v_source.breaker_failures;
  v_source.failure_streak := v_source.failure_streak + cardinality(p_ids);
  v_source.recent_retries := v_source.recent_retries || array_fill(p_now, array[least(p_retries, v_most)]);
  v_source.recent_retries :=
    v_source.recent_retries[greatest(1, cardinality(v_source.recent_retries) - v_most + 1):];
  v_in_a_row := v_source.failure_streak >= v_source.breaker_failures
    and (p_claimed_at >= v_source.streak_since or v_source.breaker_failures = 1);
  v_often := cardinality(v_source.recent_retries) = v_most
    and v_source.recent_retries[1] >= p_now - v_source.breaker_window
    and v_source.recent_retries[1] < p_now and p_claimed_at >= v_source.recent_retries[1];
  v_probe_failed := v_source.breaker_opened_at is not null and v_source.probe_job = any (p_ids);
  if v_probe_failed or (v_source.breaker_opened_at is null and (v_in_a_row or v_often)) then
    v_source.breaker_opened_at := coalesce(v_source.breaker_opened_at, p_now);
    v_source.probe_job := null;
    v_why := case
      when v_probe_failed then 'the probe failed'
      when v_in_a_row then format('%s failures in a row', v_source.failure_streak)
      else format('%s retries in %s', v_most, pgfresh_engine.in_words(v_source.breaker_window))
    end || coalesce(': ' || left(p_error, 200), '');
    -- It may be paused for longer already.
    if v_source.paused_until is null or v_source.paused_until < p_now + v_source.breaker_pause then
      v_source.paused_until := p_now + v_source.breaker_pause;
      v_source.paused_by := 'breaker';
      v_source.pause_reason := v_why;
    end if;
  end if;
  update pgfresh.sources
  set failure_streak = v_source.failure_streak, streak_since = coalesce(v_source.streak_since, p_now),
    recent_retries = v_source.recent_retries, last_failure_at = p_now,
    breaker_opened_at = v_source.breaker_opened_at, probe_job = v_source.probe_job,
    paused_until = v_source.paused_until, paused_by = v_source.paused_by, pause_reason = v_source.pause_reason
  where id = p_source_id;
  if v_source.breaker_opened_at = p_now then
    perform pgfresh_engine.warn('breaker_opened', v_source.name,
      format('The source %s is left alone for %s: %s.',
        v_source.name, pgfresh_engine.in_words(v_source.breaker_pause), v_why),
      'Nothing has to be done: one job tries later whether it is back. "pgfresh source resume" tries now.');
  end if;
end
$$;
comment on function pgfresh_engine.note_failure(int, bigint[], int, timestamptz, text, timestamptz) is
  'Counts failures of a source, the last of whose jobs was claimed then, '
  'and opens its breaker where they are too many. A part of every end that is one.';

create or replace function pgfresh_engine.note_success(p_source_id int, p_ids bigint[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source record;
begin
  select s.failure_streak, s.unhinted_holds, s.last_success_at,
    s.breaker_opened_at is not null and s.probe_job = any (p_ids) as probed
  into v_source
  from pgfresh.sources as s
  where s.id = p_source_id;
  if v_source.probed then
    update pgfresh.sources
    set failure_streak = 0, streak_since = null, unhinted_holds = 0, last_success_at = p_now, recent_retries = '{}',
      breaker_opened_at = null, probe_job = null,
      paused_until = case when paused_by in ('breaker', 'credentials') is not true then paused_until end,
      paused_by = case when paused_by in ('breaker', 'credentials') is not true then paused_by end,
      pause_reason = case when paused_by in ('breaker', 'credentials') is not true then pause_reason end
    where id = p_source_id;
    perform pgfresh_engine.wake_workers();
  elsif v_source.failure_streak > 0 or v_source.unhinted_holds > 0 then
    update pgfresh.sources
    set failure_streak = 0, streak_since = null, unhinted_holds = 0, last_success_at = p_now
    where id = p_source_id;
  elsif v_source.last_success_at is null or v_source.last_success_at < p_now - interval '10 seconds' then
    -- Only for display, so it is written at most every ten seconds, without waiting.
    update pgfresh.sources
    set last_success_at = p_now
    where id = (select s.id from pgfresh.sources as s where s.id = p_source_id for no key update skip locked);
  end if;
end
$$;
comment on function pgfresh_engine.note_success(int, bigint[], timestamptz) is
  'Notes that a source has answered: failures start anew, and a probe closes the breaker. '
  'A part of every end that is one.';

/*
  The breaker of a part: an API key that the provider rejects, or a data type whose answers are refused or older than
  the stored rows. Jobs claimed before it opened neither count nor prolong it.
*/
create or replace function pgfresh_engine.note_trouble(
  p_source_id int, p_api_key smallint, p_type_id int, p_kind text, p_what text[], p_most int, p_claimed_at timestamptz,
  p_error text, p_now timestamptz)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources;
  v_part pgfresh_engine.breaker;
  v_before pgfresh_engine.breaker;
  v_name text;
  v_why text;
  -- API keys that may not be used, and until when if there is no other.
  v_denied smallint[];
  v_until timestamptz;
begin
  select * into v_source from pgfresh.sources where id = p_source_id for no key update;
  if not found then
    -- Deleted while its last jobs ran.
    return false;
  end if;
  select *
  into v_before
  from pgfresh_engine.breaker
  where case when p_type_id is null then source_id = p_source_id and api_key = p_api_key else type_id = p_type_id end;
  if v_before.opened_at > p_claimed_at then
    return true;
  end if;
  if v_before.kind = p_kind then
    v_part := v_before;
  end if;
  v_part.streak := (
    array(select distinct what from unnest(v_part.streak || p_what) as what where what is not null)
  )[1:p_most];
  if v_part.opened_at is not null or cardinality(v_part.streak) >= p_most then
    v_part.opened_at := coalesce(v_part.opened_at, p_now);
    v_part.paused_until := p_now + v_source.breaker_pause;
    v_why := case p_kind
      when 'denied' then format('the provider refuses API key %s', p_api_key)
      when 'refused' then format('%s answers in a row were refused', p_most)
      else format('%s answers in a row were older than what is there', p_most)
    end || coalesce(': ' || left(p_error, 200), '');
  end if;
  insert into pgfresh_engine.breaker (source_id, api_key, type_id, kind, streak, opened_at, paused_until, reason)
  values (
    case when p_type_id is null then p_source_id end, p_api_key, p_type_id, p_kind,
    v_part.streak, v_part.opened_at, v_part.paused_until, v_why)
  on conflict (type_id, source_id, api_key) do update
  set kind = excluded.kind, streak = excluded.streak, opened_at = excluded.opened_at,
    paused_until = excluded.paused_until, reason = excluded.reason;
  if v_part.opened_at is null then
    return false;
  end if;
  if p_kind = 'denied' then
    v_denied := array(
      select distinct k from unnest(v_source.denied_keys || p_api_key) as k where k <= v_source.api_keys order by k);
    -- Without a usable key, the source itself waits for the first key that may be tried again.
    if cardinality(v_denied) >= v_source.api_keys then
      select min(b.paused_until)
      into v_until
      from pgfresh_engine.breaker as b
      where b.source_id = p_source_id and b.api_key = any (v_denied);
    end if;
    update pgfresh.sources as s
    set denied_keys = v_denied, last_failure_at = p_now,
      breaker_opened_at = case
        when v_until is not null then coalesce(s.breaker_opened_at, p_now) else s.breaker_opened_at
      end,
      probe_job = null,
      paused_until = case when v_until > coalesce(s.paused_until, p_now) then v_until else s.paused_until end,
      paused_by = case when v_until > coalesce(s.paused_until, p_now) then 'credentials' else s.paused_by end,
      pause_reason = case when v_until > coalesce(s.paused_until, p_now) then v_why else s.pause_reason end
    where s.id = p_source_id;
  end if;
  if v_part.opened_at = p_now then
    select data_type into v_name from pgfresh.data_type_registry where type_id = p_type_id;
    perform pgfresh_engine.warn(
      case p_kind when 'denied' then 'key_refused' when 'refused' then 'answers_refused' else 'older_source' end,
      coalesce(v_name, v_source.name),
      format('%s is left alone for %s: %s.',
        case
          when p_kind = 'denied' then format('API key %s of the source %s', p_api_key, v_source.name)
          else format('The data type %s', v_name)
        end,
        pgfresh_engine.in_words(v_source.breaker_pause), v_why),
      case p_kind
        when 'denied' then format('Renew the API key. One job tries it later; "pgfresh source resume %s" tries it now.',
          v_source.name)
        when 'refused' then format('Compare an answer with the definition ("pgfresh refused list %s"). '
          'One job tries later; "pgfresh source resume %s" tries now.', v_name, v_source.name)
        else format('Ask the provider why its data does not move on. One job tries later; '
          '"pgfresh source resume %s" tries now.', v_source.name)
      end);
  end if;
  return true;
end
$$;
comment on function pgfresh_engine.note_trouble(
  int, smallint, int, text, text[], int, timestamptz, text, timestamptz) is
  'Counts what is wrong with an API key (denied) or a data type (refused, older_source), '
  'and leaves it alone where it is too much in a row. Returns whether it is left alone. '
  'A part of every end that is one.';

create or replace function pgfresh_engine.note_answers(
  p_source_id int, p_type_id int, p_api_keys smallint[], p_claimed_at timestamptz, p_now timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_keys smallint[];
  v_open boolean;
begin
  -- Locks in the order of note_trouble: the row of the source, then those of its parts.
  perform from pgfresh.sources where id = p_source_id for no key update;
  -- A call made before the key was rejected does not show that it is accepted again.
  with accepted as (
    delete from pgfresh_engine.breaker
    where source_id = p_source_id and api_key = any (p_api_keys)
      and (opened_at is null or opened_at <= p_claimed_at)
    returning api_key, opened_at
  )
  select array_agg(api_key) into v_keys from accepted where opened_at is not null;
  if v_keys is not null then
    update pgfresh.sources
    set denied_keys = array(select k from unnest(denied_keys) as k where k <> all (v_keys)),
      breaker_opened_at = case when paused_by = 'credentials' then null else breaker_opened_at end,
      paused_until = case when paused_by = 'credentials' then null else paused_until end,
      pause_reason = case when paused_by = 'credentials' then null else pause_reason end,
      paused_by = nullif(paused_by, 'credentials')
    where id = p_source_id;
  end if;
  delete from pgfresh_engine.breaker
  where type_id = p_type_id and (opened_at is null or opened_at <= p_claimed_at)
  returning opened_at is not null into v_open;
  if v_open then
    insert into pgfresh_engine.hold (type_id, until, reason, asked_at)
    select p_type_id, 'infinity', 'refused', p_now
    where exists (select from pgfresh_engine.refused_pair as r where r.type_id = p_type_id)
    on conflict do nothing;
  end if;
  if v_open or v_keys is not null then
    perform pgfresh_engine.wake_workers();
  end if;
end
$$;
comment on function pgfresh_engine.note_answers(int, int, smallint[], timestamptz, timestamptz) is
  'Notes that a source accepts these API keys, and that answers of a data type are good, if one is given. '
  'A part of complete_jobs.';
