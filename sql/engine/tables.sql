-- What the product reads without a view. Monitors and operators get no others: see the views of api/.
grant select on pgfresh_engine.installation, pgfresh_engine.manifest, pgfresh_engine.process,
  pgfresh_engine.scheduler_service, pgfresh_engine.refused_answer
to pgfresh_monitor, pgfresh_operator;
-- What "pgfresh check" and its processes read.
grant select on pgfresh_engine.breaker, pgfresh_engine.process, pgfresh_engine.scheduler_service,
  pgfresh_engine.installation
to pgfresh_worker, pgfresh_planner, pgfresh_gateway;
grant select on pgfresh_engine.refused_answer to pgfresh_worker;
grant select on pgfresh_engine.planner_run to pgfresh_planner;
-- Whether any scheduler is there to run what was asked for.
grant select (kind, lease_until) on pgfresh_engine.process to pgfresh_scheduler;
