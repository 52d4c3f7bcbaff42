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

-- Here and not in the migrations, whose text cannot change any more.
comment on table pgfresh.data_type_registry is
  'One row per data type: its table, when its rows are stale, how it is fetched and what it may cost.';
comment on table pgfresh.sources is
  'The providers: how they may be called, within which limits, and their current state.';
comment on table pgfresh.scheduled_jobs is
  'One row per scheduled job: what runs, when, as which role, and what happens after a failure.';
comment on table pgfresh.scheduled_job_runs is
  'Every slot of every job: one row per attempt, or one with the reason why it was skipped. '
  'Consecutive skips for the same reason are one row.';
comment on table pgfresh.refresh_schedule is
  'Leases on named work: its holder and until when, when it is due, and how its last run ended.';
comment on table pgfresh.migrations is
  'The SQL files of pgfresh that were applied to this database, with the hash of each.';
comment on table pgfresh.warnings is
  'Conditions that are not errors: one row per code and subject, with the first and last time and the count.';
comment on table pgfresh.spending_stop is
  'While it has a row, no job of any source is claimed or planned. Running jobs finish. '
  'Insert a reason to stop, delete the row to continue.';
comment on table pgfresh.usage_corrections is
  'Signed entries that bring the ledger in line with the provider. Insert source, reason and either bytes, which are '
  'added, or provider_bytes: what the provider says was used since a time, by default since the window of the quota '
  'began. Then the difference to the ledger is added.';
