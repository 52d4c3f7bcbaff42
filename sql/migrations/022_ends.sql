drop function if exists pgfresh.turn_back_jobs(
  bigint[], int[], bigint[], text, text, text, int[], boolean, int[], int[], uuid[]);
drop function if exists pgfresh.take_back(bigint, text, text);

-- How often it was put back without counting a retry.
alter table pgfresh.job add column put_backs smallint not null default 0;

-- How often in a row its provider has refused calls as too many and has not said for how long.
alter table pgfresh.sources add column unhinted_holds smallint not null default 0;
