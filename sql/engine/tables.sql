-- What every process reads when it starts, and what "pgfresh check" reads.
grant select on pgfresh_engine.breaker, pgfresh_engine.job_cursor, pgfresh_engine.job_statistics,
  pgfresh_engine.scheduler, pgfresh_engine.installation
to pgfresh_worker, pgfresh_planner, pgfresh_gateway;
grant select on pgfresh_engine.refused_answer to pgfresh_worker;
grant select on pgfresh_engine.planner_run to pgfresh_planner;
-- What the status of jobs is made of.
grant select on pgfresh_engine.job_cursor, pgfresh_engine.job_statistics, pgfresh_engine.scheduler to pgfresh_scheduler;
