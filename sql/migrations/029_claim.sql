-- Only our own functions write jobs, and reading the constraint anew cost each claim and each enqueue 6 µs.
alter table pgfresh.job drop constraint job_state_check;

drop function if exists pgfresh.pick_free(int, int[], smallint[], bigint[], boolean, boolean, bigint);
drop function if exists pgfresh.judge_keys(pgfresh.data_type_registry, text[]);
drop function if exists pgfresh.queue_cycle_keys(pgfresh.data_type_registry, text[]);
