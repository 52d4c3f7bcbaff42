/*
  The end of a prerequisite wakes the pairs that wait for it, except those that are being decided about at that moment:
  it cannot see that they wait. So a pair that waits is looked at again by itself, soon and then more and more rarely:
  each time after as long as the job of its prerequisite has been open by then.
*/
create or replace function pgfresh_engine.prerequisite_look_at(
  p_needs_id int, p_key text, p_now timestamptz, p_latest timestamptz)
returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select least(p_latest, (
    select case
      when p.job_id is not null then p_now + greatest(p_now - j.created_at, interval '1 second')
      -- It has just ended. Without a job for another reason, such as a pause of its source, it can take long.
      when p.ok_at > p_now - interval '5 seconds' then p_now + interval '1 second'
    end
    from pgfresh_engine.pairs as p
    left join pgfresh_engine.job as j on j.id = p.job_id
    where p.type_id = p_needs_id and p.key = p_key collate "C"))
$$;
comment on function pgfresh_engine.prerequisite_look_at(int, text, timestamptz, timestamptz) is
  'When to look again at a pair that waits for its prerequisite, at the latest at p_latest. A part of the planner.';
