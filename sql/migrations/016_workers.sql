-- What each worker can refresh, so that a job which no worker takes is seen as such.
-- Apart from the worker, whose row is written by every heartbeat.
create table pgfresh.worker_service (
  worker bigint primary key references pgfresh.worker on delete cascade,
  -- The data types that it refreshes now, by number.
  types int[] not null,
  -- The fetchers of its configuration, and the data types that it is limited to; null is no limit.
  fetchers text[] not null,
  limited_to text[]
);
comment on table pgfresh.worker_service is
  'What workers refresh, as they have said it. One without a row here may refresh anything.';

-- What a rule of several columns means, for the one who breaks it: what is wrong, and on the next line what to do.
alter table pgfresh.data_type_registry rename constraint data_type_registry_check to schedule_with_strategy;
comment on constraint schedule_with_strategy on pgfresh.data_type_registry is
  'refresh_schedule goes with refresh_strategy ''scheduled'', and with no other
Set both, or leave out both.';
alter table pgfresh.data_type_registry rename constraint data_type_registry_check1 to key_table_with_column;
comment on constraint key_table_with_column on pgfresh.data_type_registry is
  'key_table and key_table_column go together
Set both, or leave out both.';
alter table pgfresh.data_type_registry rename constraint data_type_registry_check2 to key_active_column_with_table;
comment on constraint key_active_column_with_table on pgfresh.data_type_registry is
  'key_active_column is a column of key_table, and there is none
Set key_table and key_table_column too, or leave it out.';
alter table pgfresh.data_type_registry rename constraint data_type_registry_check3 to key_table_or_pattern;
comment on constraint key_table_or_pattern on pgfresh.data_type_registry is
  'keys come from key_table or match key_pattern, not both
Leave out one of them.';
alter table pgfresh.data_type_registry rename constraint data_type_registry_check4 to schedule_needs_key_table;
comment on constraint schedule_needs_key_table on pgfresh.data_type_registry is
  'a scheduled data type needs key_table: the schedule refreshes the keys that it has
Set key_table and key_table_column.';
alter table pgfresh.data_type_registry rename constraint data_type_registry_check5 to gate_opens_with_gate;
comment on constraint gate_opens_with_gate on pgfresh.data_type_registry is
  'gate_opens_function says when a gate opens, and there is no gate_function
Set gate_function too, or leave it out.';
alter table pgfresh.data_type_registry rename constraint data_type_registry_check6 to priority_with_threshold;
comment on constraint priority_with_threshold on pgfresh.data_type_registry is
  'background_priority and ui_threshold go together
Set both, or leave out both.';
comment on constraint data_type_registry_data_type_check on pgfresh.data_type_registry is
  'a data type has a name of lower-case letters, digits, _ and -, at most 63, that begins with a letter
Choose another name, such as quote or dividend-history.';
comment on constraint data_type_registry_fetcher_check on pgfresh.data_type_registry is
  'a fetcher has a name of letters, digits, _, . and -, at most 100, that begins with a letter
Name a data type of the configuration that has request, schema and rows.';
comment on constraint sources_name_check on pgfresh.sources is
  'a source has a name of lower-case letters, digits, _ and -, at most 63, that begins with a letter
Choose another name, such as market.';
