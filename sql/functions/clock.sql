-- The one source of time. It is volatile, so a comparison with an indexed column must read it once,
-- as (select pgfresh.clock()), or the index is not used.
create or replace function pgfresh.clock() returns timestamptz
language sql volatile parallel safe
set search_path = pg_catalog, pg_temp
as $$ select pg_catalog.clock_timestamp() $$;

comment on function pgfresh.clock() is
  'The time by the database''s own clock, which decides everything in pgfresh. Only a test database may replace it.';

revoke all on function pgfresh.clock() from public;
