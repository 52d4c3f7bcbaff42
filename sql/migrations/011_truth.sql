/*
  What is shown of a pair is true: its row is fresh by its own time, or by the time at which the source confirmed it,
  and never by an attempt. When it may be asked for again is another matter, and has a column of its own.
*/
alter table pgfresh.pairs rename column not_before to next_ask_at;
alter table pgfresh.pairs
  drop column checked_at,
  -- When the source last said that what is there still holds (unchanged, 304).
  add column confirmed_at timestamptz,
  -- When the source last said that there is nothing.
  add column empty_at timestamptz,
  -- The time of the row as its last success left it, or as the planner has seen it since; null is no row.
  -- A row without a time is as old as can be.
  add column row_at timestamptz,
  -- When that row goes stale.
  add column stale_at timestamptz,
  -- How old the data is at the source, by its last answer.
  add column source_at timestamptz,
  -- False while nobody has looked at what the last success left.
  add column seen boolean not null default true,
  -- How often others have deleted or set back what was just written, and when last.
  add column lapses smallint not null default 0,
  add column lapsed_at timestamptz,
  -- What keeps a stale pair from a job, as the planner's last look has found it.
  add column waits_for text;
-- What is known of them is when they were last refreshed. The next sweep looks.
update pgfresh.pairs as p
set seen = false, stale_at = p.ok_at + r.ttl,
  empty_at = case when p.outcome = 'empty' then p.ok_at end
from pgfresh.data_type_registry as r
where r.type_id = p.type_id and p.ok_at is not null;

alter table pgfresh.data_type_registry
  -- How old data may be at the source; null is as old as it likes.
  add column max_source_age interval check (max_source_age > '0' and max_source_age <= '3660 days');

-- Functions and types whose arguments or results have changed; the files of functions make them anew.
drop function if exists pgfresh.ask_stale(int, text[], timestamptz[], timestamptz[], interval, timestamptz);
drop function if exists pgfresh.complete_jobs(bigint[], int[], bigint[], text[], int[], int[], int[], int[], uuid[]);
drop function if exists pgfresh.read_pairs(int, text[]);
drop function if exists pgfresh.read_pairs_as(text, text, jsonb, int, text[]);
drop type if exists pgfresh.looks cascade;
drop type if exists pgfresh.look cascade;
do $$
declare
  v_function regprocedure;
begin
  -- The functions that ask whether pairs are stale are made anew, by the file of the registry's functions.
  for v_function in
    select p.oid
    from pg_proc as p
    where p.pronamespace = 'pgfresh'::regnamespace and p.proname ~ '^check_\d+$'
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
