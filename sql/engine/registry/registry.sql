create or replace function pgfresh_engine.complete_registry_row() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  -- By name or by id; the name wins if both are given and differ.
  if new.source is null or (tg_op = 'UPDATE' and new.source_id is distinct from old.source_id
      and new.source is not distinct from old.source) then
    select name into new.source from pgfresh.sources where id = new.source_id;
  else
    select id into new.source_id from pgfresh.sources where name = new.source;
  end if;
  if new.source_id is null then
    perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
      format('source: there is no source %s', coalesce(left(quote_literal(new.source), 80), 'null')),
      coalesce(
        'The known ones: ' || (select string_agg(name, ', ' order by name) from pgfresh.sources) || '.',
        'Insert one into pgfresh.sources first.'));
  end if;
  new.fetcher := coalesce(new.fetcher, new.data_type);
  new.definition := case
    when tg_op = 'INSERT' then 1
    else old.definition + (
      row(old.source_id, old.fetcher, old.table_name, old.key_columns, old.timestamp_column,
        old.source_timestamp_field, old.normalise, old.empty_rows)
      is distinct from row(new.source_id, new.fetcher, new.table_name, new.key_columns, new.timestamp_column,
        new.source_timestamp_field, new.normalise, new.empty_rows))::int
  end;
  return new;
end
$$;
comment on function pgfresh_engine.complete_registry_row() is
  'Trigger of the registry: a source is given by its name, '
  'and the definition grows with each change of what a fetch or a write depends on.';

/*
  Staleness is checked constantly, so each data type has its own function for it, whose plan is cached.
  The schema's owner creates it, even if another role writes the row, and it runs with the rights of its caller,
  the evaluator.
*/
create or replace function pgfresh_engine.write_check(p_resolution pgfresh_engine.type_resolution) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_signature text := format(
    'pgfresh_engine.check_%s(text[], timestamptz[], timestamptz[], timestamptz[], interval, timestamptz)',
    p_resolution.type_id);
begin
  execute format('create or replace function %s '
    'returns table (key text, found boolean, stale boolean, next_at timestamptz, at timestamptz, '
    'row_at timestamptz, due_at timestamptz) '
    'language plpgsql %s as %L',
    v_signature,
    -- Planned once, for index scans and hashes. Plans of users' functions are left to PostgreSQL.
    case when p_resolution.fingerprint #>> '{staleness_function,signature}'
        = 'pgfresh.is_data_stale(timestamp with time zone,interval)' then
      'set plan_cache_mode = force_generic_plan '
      'set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off'
    else '' end,
    format(E'#variable_conflict use_column\nbegin\n  return query %s;\nend', p_resolution.check_sql));
  execute format('comment on function %s is %L',
    v_signature, 'Whether pairs of a data type are stale. Written by the registry.');
  execute format('revoke all on function %s from public', v_signature);
  execute format('grant execute on function %s to pgfresh_evaluator', v_signature);
end
$$;
comment on function pgfresh_engine.write_check(pgfresh_engine.type_resolution) is
  'Makes the function that asks whether pairs of a data type are stale. A part of the registry.';

create or replace function pgfresh_engine.keep_resolution() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_resolution pgfresh_engine.type_resolution := pgfresh_engine.resolve_type(new, true);
  v_unknown text;
begin
  delete from pgfresh_engine.type_resolution where type_id = new.type_id;
  insert into pgfresh_engine.type_resolution select (v_resolution).*;
  perform pgfresh_engine.write_check(v_resolution);
  -- Before the stamp, because the first trigger on a table changes the table's catalog row.
  perform pgfresh_engine.keep_change_triggers(new);
  update pgfresh_engine.type_resolution as r
  set stamp = s.stamp
  from pgfresh_engine.catalog_stamps(array[new.type_id]) as s
  where r.type_id = new.type_id;

  select name
  into v_unknown
  from unnest(new.depends_on) as name
  where not exists (select from pgfresh.data_type_registry as r where r.data_type = name) or name = new.data_type;
  if found then
    perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
      format('depends_on: there is no other data type %s', coalesce(left(quote_literal(v_unknown), 80), 'null')),
      'Add the data types that it needs first.');
  end if;
  delete from pgfresh_engine.type_dependency where type_id = new.type_id;
  insert into pgfresh_engine.type_dependency (type_id, needs_id)
  select distinct new.type_id, r.type_id
  from unnest(new.depends_on) as name
  join pgfresh.data_type_registry as r on r.data_type = name;
  -- Types that name it as a prerequisite, although it was deleted or renamed for a while.
  with returned as (
    insert into pgfresh_engine.type_dependency (type_id, needs_id)
    select r.type_id, new.type_id
    from pgfresh.data_type_registry as r
    where new.data_type = any (r.depends_on) and r.type_id <> new.type_id
    on conflict do nothing
    returning type_id
  ), released as (
    -- Their pairs that failed for lack of it.
    update pgfresh_engine.pairs as p
    set next_ask_at = null, due_at = case when p.demanded then pgfresh.clock() else p.due_at end
    from returned as d
    where p.type_id = d.type_id and p.outcome = 'dependency' and p.job_id is null
    returning p.type_id, p.key, p.demanded, p.due_at
  )
  insert into pgfresh_engine.due (due_at, type_id, key)
  select r.due_at, r.type_id, r.key from released as r where r.demanded
  on conflict do nothing;
  if exists (
    with recursive needed (type_id) as (
      select needs_id from pgfresh_engine.type_dependency where type_id = new.type_id
      union
      select d.needs_id from needed as n join pgfresh_engine.type_dependency as d on d.type_id = n.type_id
    )
    select from needed where type_id = new.type_id
  ) then
    perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
      format('depends_on: %s needs itself by way of another', new.data_type),
      'Break the circle.');
  end if;
  return null;
end
$$;
comment on function pgfresh_engine.keep_resolution() is
  'Trigger of the registry: looks up what a row names and refuses what does not resolve.';

-- Its demand, pairs and jobs are removed when the transaction commits.
create or replace function pgfresh_engine.forget_type() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  execute format(
    'drop function if exists '
    'pgfresh_engine.check_%s(text[], timestamptz[], timestamptz[], timestamptz[], interval, timestamptz)',
    old.type_id);
  delete from pgfresh_engine.watched_type where type_id = old.type_id;
  perform pgfresh_engine.drop_change_functions(old.type_id);
  return old;
end
$$;
comment on function pgfresh_engine.forget_type() is
  'Trigger of the registry: drops the functions and triggers that were made for a data type.';

-- Its data types would lose their source, and a foreign key error does not name them.
create or replace function pgfresh_engine.refuse_used_source() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_types text := (
    select string_agg(data_type, ', ' order by data_type) from pgfresh.data_type_registry where source_id = old.id);
begin
  if v_types is not null then
    perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
      format('the source %s has data types: %s', old.name, left(v_types, 200)),
      'Give them another source, or delete them, before it is deleted.');
  end if;
  return old;
end
$$;
comment on function pgfresh_engine.refuse_used_source() is
  'Trigger of sources: one that has data types cannot be deleted.';
create or replace trigger refuse_used_source before delete on pgfresh.sources
  for each row execute function pgfresh_engine.refuse_used_source();

create or replace trigger forget_type before delete on pgfresh.data_type_registry
  for each row execute function pgfresh_engine.forget_type();
create or replace trigger complete_registry_row before insert or update on pgfresh.data_type_registry
  for each row execute function pgfresh_engine.complete_registry_row();
-- Triggers run in name order: this one after those that complete the row.
create or replace trigger refuse_broken_rules before insert or update on pgfresh.data_type_registry
  for each row execute function pgfresh_engine.refuse_broken_rules('PGF_REGISTRY_INVALID');
-- Only for columns that users write: the others change with every failure and pause.
create or replace trigger refuse_broken_rules before insert or update
  of name, enabled, rate_limit_per_minute, api_keys, quota_bytes, quota_window, quota_buffer,
    viewed_share, max_concurrency, one_key_at_a_time
  on pgfresh.sources
  for each row execute function pgfresh_engine.refuse_broken_rules('PGF_REGISTRY_INVALID');
create or replace trigger keep_resolution after insert or update on pgfresh.data_type_registry
  for each row execute function pgfresh_engine.keep_resolution();
