-- The one source of time. It is volatile, so a comparison with an indexed column must read it once,
-- as (select pgfresh.clock()), or the index is not used.
create or replace function pgfresh.clock() returns timestamptz
language sql volatile parallel safe
set search_path = pg_catalog, pg_temp
as $$ select pg_catalog.clock_timestamp() $$;

comment on function pgfresh.clock() is
  'The time by the database''s own clock, which decides everything in pgfresh. Only a test database may replace it.';
grant execute on function pgfresh.clock() to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator, pgfresh_scheduler, pgfresh_evaluator;

-- With the rights of its owner, because who writes the table need not have any on this schema.
-- It touches nothing but the row.
create or replace function pgfresh.preserve_first_seen_at() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'UPDATE' and old.first_seen_at is not null then
    new.first_seen_at := old.first_seen_at;
  elsif new.first_seen_at is null then
    new.first_seen_at := pgfresh.clock();
  end if;
  return new;
end
$$;
comment on function pgfresh.preserve_first_seen_at() is
  'Trigger of attach_first_seen_at: sets first_seen_at of a new row, and keeps it ever after.';

create or replace function pgfresh.attach_first_seen_at(p_table regclass) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_kind "char";
  v_type text;
  v_generated text;
  v_known boolean;
begin
  select relkind into v_kind from pg_class where oid = p_table;
  if v_kind is null or v_kind not in ('r', 'p') then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_table must be a table, got %s', coalesce(left(p_table::text, 130), 'null')),
      'Pass its name, for instance ''public.opening_signals''.');
  end if;
  select format_type(atttypid, null), attgenerated
  into v_type, v_generated
  from pg_attribute
  where attrelid = p_table and attname = 'first_seen_at' and not attisdropped;
  if v_type is distinct from 'timestamp with time zone' or v_generated <> '' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('%s must have a column first_seen_at of type timestamptz, got %s', left(p_table::text, 130),
        case when v_generated <> '' then 'a generated one' else coalesce('one of type ' || v_type, 'none') end),
      format('Add it: alter table %s add column first_seen_at timestamptz.', left(p_table::text, 130)));
  end if;
  v_known := exists (
    select from pg_trigger
    where tgrelid = p_table and tgname = 'preserve_first_seen_at'
      and tgfoid = 'pgfresh.preserve_first_seen_at()'::regprocedure
  );
  execute format('create or replace trigger preserve_first_seen_at before insert or update on %s '
    'for each row execute function pgfresh.preserve_first_seen_at()', p_table);
  return not v_known;
end
$$;
comment on function pgfresh.attach_first_seen_at(regclass) is
  'Lets a table keep first_seen_at: set when a row is inserted, and never changed by an update or an upsert. '
  'Needs the rights of the table''s owner. Returns whether it did not do so before.';

create or replace function pgfresh.is_valid_identifier(p_identifier text) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select coalesce(p_identifier ~ '^[A-Za-z_][A-Za-z0-9_]*$' and octet_length(p_identifier) <= 63, false) $$;
comment on function pgfresh.is_valid_identifier(text) is
  'Whether a text can be the name of a table, column or function in the registry: '
  'letters, digits and underscores, at most 63, no dot.';

create or replace function pgfresh.is_data_stale(p_fetched_at timestamptz, p_ttl interval) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_ttl is null or p_ttl <= interval '0' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('a TTL must be positive, got %s', coalesce(p_ttl::text, 'null')),
      'Pass the TTL of the registry.');
  end if;
  return p_fetched_at is null or p_fetched_at + p_ttl <= pgfresh.clock();
end
$$;
comment on function pgfresh.is_data_stale(timestamptz, interval) is
  'Whether data of that time is older than its TTL. No time at all is stale. '
  'The TTL has no default and must be positive.';
grant execute on function pgfresh.is_data_stale(timestamptz, interval) to pgfresh_evaluator;

create or replace function pgfresh.is_data_stale(p_fetched_at timestamptz, p_ttl_minutes int) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_ttl_minutes is null or p_ttl_minutes <= 0 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('a TTL must be positive, got %s', coalesce(p_ttl_minutes::text, 'null')),
      'Pass the TTL of the registry.');
  end if;
  return pgfresh.is_data_stale(p_fetched_at, make_interval(mins => p_ttl_minutes));
end
$$;
comment on function pgfresh.is_data_stale(timestamptz, int) is 'The same with the TTL in minutes.';
grant execute on function pgfresh.is_data_stale(timestamptz, int) to pgfresh_evaluator;
