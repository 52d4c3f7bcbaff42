-- Attempts that did not end their job, so that each call of a job is in the history and not only the last one.
-- A tree of its own: a job that succeeds at once writes nothing here, and the other two have one row for each job.
create table pgfresh.history_attempt (like pgfresh.history_succeeded including defaults) partition by range (ended_at);
comment on table pgfresh.history_attempt is
  'Attempts after which their job was tried again, by day. The last attempt of a job is in one of the other two trees.';
create index on pgfresh.history_attempt (id);
create index on pgfresh.history_attempt (type_id, key, ended_at);
create table pgfresh.history_attempt_default partition of pgfresh.history_attempt default;

-- The column that says how old data is at its source is validated from now on, and looked up anew in what is registered.
update pgfresh.type_resolution as t
set columns = t.columns || r.source_timestamp_field::name, stamp = null
from pgfresh.data_type_registry as r
where r.type_id = t.type_id and r.source_timestamp_field is not null;
