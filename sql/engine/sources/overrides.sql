/*
  The configuration sets the limits of a source, and sync writes them. Changes by an operator stay: they are overrides,
  with author, time and reason, until they are cleared or the configuration changes that value. Sync lists the columns
  that it writes in pgfresh.sync, because it may run as the same role as an operator.
*/
create or replace function pgfresh_engine.source_settings(p_source pgfresh.sources) returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  -- Intervals in seconds: the same interval can be written in several ways.
  select jsonb_build_object(
    'enabled', p_source.enabled, 'rate_limit_per_minute', p_source.rate_limit_per_minute,
    'api_keys', p_source.api_keys, 'quota_bytes', p_source.quota_bytes,
    'quota_window', extract(epoch from p_source.quota_window), 'quota_buffer', p_source.quota_buffer,
    'viewed_share', p_source.viewed_share, 'max_concurrency', p_source.max_concurrency,
    'one_key_at_a_time', p_source.one_key_at_a_time, 'breaker_failures', p_source.breaker_failures,
    'breaker_window', extract(epoch from p_source.breaker_window),
    'breaker_pause', extract(epoch from p_source.breaker_pause))
$$;
comment on function pgfresh_engine.source_settings(pgfresh.sources) is
  'What the configuration may say about a source, by column, with intervals in seconds.';

create or replace function pgfresh_engine.keep_overrides() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_synced text[] := string_to_array(nullif(current_setting('pgfresh.sync', true), ''), ',');
  v_now jsonb := pgfresh_engine.source_settings(new);
  v_before jsonb;
  v_column text;
begin
  if new.managed_by <> 'config' then
    new.config := '{}';
    new.overrides := '{}';
    return new;
  end if;
  if tg_op = 'UPDATE' then
    v_before := pgfresh_engine.source_settings(old);
  end if;
  if v_synced is not null then
    new.config := new.config || coalesce(
      (select jsonb_object_agg(s.key, s.value) from jsonb_each(v_now) as s where s.key = any (v_synced)), '{}');
  end if;
  for v_column in select jsonb_object_keys(new.config) loop
    if v_now -> v_column = new.config -> v_column then
      new.overrides := new.overrides - v_column;
    elsif v_now -> v_column is distinct from v_before -> v_column then
      new.overrides := new.overrides || jsonb_build_object(v_column, jsonb_build_object(
        'value', v_now -> v_column, 'config_value', new.config -> v_column,
        'by', session_user, 'at', pgfresh.clock(), 'reason', nullif(current_setting('pgfresh.reason', true), '')));
    end if;
  end loop;
  return new;
end
$$;
comment on function pgfresh_engine.keep_overrides() is
  'Trigger of sources: keeps what the configuration says, and who has set something else.';

create or replace trigger keep_overrides
  before insert or update of managed_by, enabled, rate_limit_per_minute, api_keys, quota_bytes, quota_window,
    quota_buffer, viewed_share, max_concurrency, one_key_at_a_time, breaker_failures, breaker_window, breaker_pause
  on pgfresh.sources
  for each row execute function pgfresh_engine.keep_overrides();

create or replace function pgfresh_engine.set_source_value(p_source pgfresh.sources, p_column text, p_value text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_known text := (
    select string_agg(k, ', ' order by k) from jsonb_object_keys(pgfresh_engine.source_settings(p_source)) as k
  );
  v_type text;
begin
  select format_type(a.atttypid, a.atttypmod)
  into v_type
  from pg_attribute as a
  where a.attrelid = 'pgfresh.sources'::regclass and a.attname = p_column
    and pgfresh_engine.source_settings(p_source) ? p_column;
  if v_type is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('a source has no setting %s, only %s', coalesce(left(quote_literal(p_column), 60), 'null'), v_known),
      'Pass the name of a column of pgfresh.sources that the configuration may set.');
  end if;
  execute format('update pgfresh.sources set %I = $1::%s where id = $2', p_column, v_type)
  using p_value, p_source.id;
exception when check_violation or not_null_violation or data_exception then
  perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
    format('%s cannot be %s', p_column, coalesce(left(quote_literal(p_value), 60), 'none')),
    'docs/reference/configuration.md says which values it may have.');
end
$$;
comment on function pgfresh_engine.set_source_value(pgfresh.sources, text, text) is
  'Writes one setting of a source. A part of override_source.';

create or replace function pgfresh_engine.override_source(p_source text, p_column text, p_value text, p_reason text)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh_engine.require_source(p_source);
begin
  perform pgfresh_engine.require_reason('p_reason', p_reason);
  -- The caller is not a sync, whatever the session says.
  perform set_config('pgfresh.sync', '', true);
  perform set_config('pgfresh.reason', p_reason, true);
  perform pgfresh_engine.set_source_value(v_source, p_column, p_value);
  perform set_config('pgfresh.reason', '', true);
  perform pgfresh_engine.wake_workers();
  return (select overrides from pgfresh.sources where id = v_source.id);
end
$$;
comment on function pgfresh_engine.override_source(text, text, text, text) is
  'Sets one setting of a source by its column, for instance rate_limit_per_minute, whatever the configuration says. '
  'It stays until clear_source_override or until the configuration has another value. null is no limit. '
  'Returns all overrides of the source, with who, when and why.';
grant execute on function pgfresh_engine.override_source(text, text, text, text) to pgfresh_operator;

create or replace function pgfresh_engine.clear_source_override(p_source text, p_column text default null) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh_engine.require_source(p_source);
  v_column text;
  v_count int := 0;
begin
  if p_column is not null and not pgfresh_engine.source_settings(v_source) ? p_column then
    perform pgfresh_engine.set_source_value(v_source, p_column, null);
  end if;
  for v_column in
    select k from jsonb_object_keys(v_source.overrides) as k where p_column is null or k = p_column order by k
  loop
    perform pgfresh_engine.set_source_value(v_source, v_column,
      (v_source.config ->> v_column) || case
        when v_column in ('quota_window', 'breaker_window', 'breaker_pause') then ' seconds' else ''
      end);
    v_count := v_count + 1;
  end loop;
  perform pgfresh_engine.wake_workers();
  return v_count;
end
$$;
comment on function pgfresh_engine.clear_source_override(text, text) is
  'Gives a source back what the configuration says, of one setting or of all. Returns how many were overridden.';
grant execute on function pgfresh_engine.clear_source_override(text, text) to pgfresh_operator;
