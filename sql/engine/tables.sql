-- What "pgfresh check" and its processes read.
grant select on pgfresh_engine.breaker, pgfresh_engine.process, pgfresh_engine.scheduler_service,
  pgfresh_engine.installation
to pgfresh_worker, pgfresh_planner, pgfresh_gateway;
grant select on pgfresh_engine.refused_answer to pgfresh_worker;
grant select on pgfresh_engine.planner_run to pgfresh_planner;
-- Whether any scheduler is there to run what was asked for.
grant select (kind, lease_until) on pgfresh_engine.process to pgfresh_scheduler;
