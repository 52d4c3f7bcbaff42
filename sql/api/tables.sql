-- What every process reads when it starts, and what "pgfresh check" reads.
grant select on
  pgfresh.migrations, pgfresh.sources, pgfresh.data_type_registry, pgfresh.warnings, pgfresh.spending_stop,
  pgfresh.scheduled_jobs, pgfresh.scheduled_job_runs
to pgfresh_worker, pgfresh_planner, pgfresh_gateway;
grant select on pgfresh.refresh_schedule to pgfresh_planner;

/*
  Jobs are registered by plain inserts, and paused by an update of paused_until. Whose jobs a role may write is decided
  by a trigger, which runs with the rights of the writer. Operators enable, disable and pause every job, and write
  nothing else of it.
*/
grant select, delete on pgfresh.scheduled_jobs to pgfresh_scheduler;
do $$
declare
  v_columns text := (
    select string_agg(quote_ident(attname), ', ')
    from pg_attribute
    where attrelid = 'pgfresh.scheduled_jobs'::regclass and attnum > 0 and not attisdropped
      and attname not in (
        'id', 'resolution', 'problem', 'last_run_at', 'created_at', 'updated_at', 'paused_at', 'paused_by')
  );
begin
  execute format('grant insert (%1$s), update (%1$s) on pgfresh.scheduled_jobs to pgfresh_scheduler', v_columns);
end
$$;
grant update (enabled, paused_until, paused_reason) on pgfresh.scheduled_jobs to pgfresh_operator;
grant select on pgfresh.scheduled_job_runs to pgfresh_scheduler;

-- A stop of all spending, and corrections of the ledger.
grant insert (reason), delete on pgfresh.spending_stop to pgfresh_operator;
grant insert (source, reason, bytes, provider_bytes, since) on pgfresh.usage_corrections to pgfresh_operator;
