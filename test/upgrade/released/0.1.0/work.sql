-- Work under way: viewers, waiting jobs, two jobs that a worker has claimed, one that is done, a run that a scheduler has
-- begun and one that waits, a lease, and a process of each kind.
select pgfresh.register_worker('old worker');
select pgfresh.register_node('old gateway');
insert into public.quote (key, price, fetched_at) values ('A', 1, pgfresh.clock() - interval '1 hour');
select pgfresh.upsert_active_subscription('ann', key, 'quote') from unnest('{A,B,C,D,E}'::text[]) as key;
select pgfresh.queue_refresh_if_not_exists('F', 'quote', 5);
create table public.claimed as
  select (job ->> 'id')::bigint as id, (job ->> 'attempt')::int as attempt, job ->> 'key' as key
  from jsonb_array_elements(pgfresh.get_queue_batch(3, p_worker => 'old client')) as job;
select pgfresh.complete_queue_job(id, 100, attempt) from (select * from public.claimed order by id limit 1) as done;

select pgfresh.trigger_scheduled_job('report');
create table public.running as
  select run.run_id, run.job_id, scheduler.id as scheduler
  from (select pgfresh.register_scheduler('old scheduler', '{}', '2026a') as id) as scheduler
  cross join lateral pgfresh.take_waiting_runs(scheduler.id, gen_random_uuid(), '{}', true, 1) as run;
select pgfresh.trigger_scheduled_job('often');
create table public.held as select token from pgfresh.acquire_refresh_lock('nightly', 'old process', '1 hour');
