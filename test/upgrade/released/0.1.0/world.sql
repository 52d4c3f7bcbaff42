-- What an application has besides the schema: its tables, its data types and jobs, and objects that it put into our
-- schema or built upon ours. Also loaded into a new database of the version under test, to compare the two.
create table public.quote (
  key text primary key, price numeric, fetched_at timestamptz, first_seen_at timestamptz
);
create trigger preserve_first_seen_at before insert or update on public.quote
  for each row execute function pgfresh.preserve_first_seen_at();
create table public.report (made_at timestamptz not null default pgfresh.clock());
create function public.make_report() returns jsonb language plpgsql as $$
begin
  insert into public.report default values;
  return '{"success": true, "message": "done", "details": {}}';
end
$$;

insert into pgfresh.sources (name, rate_limit_per_minute, quota_bytes) values ('market', 600, 1000000);
insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column, ttl)
values ('quote', 'market', 'public.quote', 'fetched_at', '1 minute');
insert into pgfresh.scheduled_jobs (name, function_name, schedule)
values ('report', 'public.make_report', '@daily'), ('often', 'public.make_report', '* * * * *');

create function pgfresh.my_rule(p_value int) returns boolean language sql as 'select $1 > 0';
create table pgfresh.my_notes (id int primary key, note text);
create view pgfresh.my_sources as select name from pgfresh.sources;
create type pgfresh.my_pair as (a int, b int);
create trigger my_guard before insert on pgfresh.sources
  for each row execute function suppress_redundant_updates_trigger();
alter table pgfresh.sources disable trigger my_guard;
create view public.my_types as select data_type, ttl from pgfresh.data_type_registry;
