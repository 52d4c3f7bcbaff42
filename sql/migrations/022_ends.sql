drop function if exists pgfresh.turn_back_jobs(
  bigint[], int[], bigint[], text, text, text, int[], boolean, int[], int[], uuid[]);
drop function if exists pgfresh.take_back(bigint, text, text);

drop function if exists pgfresh.take_call(int, smallint);
drop function if exists pgfresh.take_slots(pgfresh.sources, smallint, int, timestamptz);
drop function if exists pgfresh.learn_size(int, bigint[]);

alter table pgfresh.job
  -- How many calls it is known to take, and how many of them its claim has taken and it has not made yet.
  add column needs smallint not null default 1,
  add column calls_left smallint not null default 0;
-- How many calls a job of the type takes: more than one where it is redirected, for instance.
alter table pgfresh.type_stats add column calls real not null default 1;

-- How often in a row its provider has refused calls as too many and has not said for how long.
alter table pgfresh.sources add column unhinted_holds smallint not null default 0;
