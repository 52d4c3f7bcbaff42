-- It answers which claims the worker has not named, instead of putting them back itself.
drop function if exists pgfresh.heartbeat_worker(bigint, uuid[]);
