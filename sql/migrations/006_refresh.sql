-- Answers that were not good enough to be written, to be looked at and checked again after a correction.
-- Few, and the newest only.
create table pgfresh.refused_answer (
  id bigint generated always as identity primary key,
  type_id int not null references pgfresh.data_type_registry (type_id) on delete cascade,
  key text collate "C" not null,
  job_id bigint,
  at timestamptz not null,
  outcome text not null,
  error text not null,
  status int,
  content_type text,
  -- How large it was; what is kept may be its start only.
  size bigint not null,
  body bytea not null,
  metadata jsonb
);
create index on pgfresh.refused_answer (type_id, id);
-- Bodies are read one at a time, if at all.
alter table pgfresh.refused_answer alter column body set storage external;
comment on table pgfresh.refused_answer is
  'The newest refused answers of each data type, without secrets; pgfresh refused shows them.';
