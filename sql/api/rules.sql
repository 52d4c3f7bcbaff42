-- The one source of time. It is volatile, so a comparison with an indexed column must read it once,
-- as (select pgfresh.clock()), or the index is not used.
create or replace function pgfresh.clock() returns timestamptz
language sql volatile parallel safe
set search_path = pg_catalog, pg_temp
as $$ select pg_catalog.clock_timestamp() $$;

comment on function pgfresh.clock() is
  'The time by the database''s clock, which decides everything in pgfresh. Only a test database may replace it.';
grant execute on function pgfresh.clock() to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator, pgfresh_scheduler,
    pgfresh_evaluator;

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
  'Trigger for your table with a column first_seen_at: sets it when a row is inserted, and never changes it: create '
  'trigger preserve_first_seen_at before insert or update on it for each row execute function '
  'pgfresh.preserve_first_seen_at().';

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
