create table pgfresh.sources (
  id int generated always as identity primary key,
  name text not null unique check (name ~ '^[a-z][a-z0-9_-]{0,62}$'),
  enabled boolean not null default true,
  rate_limit_per_minute int check (rate_limit_per_minute > 0),
  -- Bytes that may be used in any window; null is no limit. The buffer is the share of it that is ever used.
  quota_bytes bigint check (quota_bytes > 0),
  quota_window interval not null default '30 days' check (quota_window between '1 hour' and '366 days'),
  quota_buffer numeric not null default 0.95 check (quota_buffer > 0 and quota_buffer <= 1),
  failure_streak int not null default 0 check (failure_streak >= 0),
  last_success_at timestamptz,
  last_failure_at timestamptz,
  paused_until timestamptz,
  created_at timestamptz not null default clock_timestamp()
);
comment on table pgfresh.sources is 'The providers: who is called, and within which limits.';

/*
  What a user writes to have a data type kept fresh, by one insert. What the names mean is looked up when the row is
  written, and kept in type_resolution. A name may have its schema before a dot; without one it means the schema public.
*/
create table pgfresh.data_type_registry (
  type_id int generated always as identity unique,
  data_type text primary key check (data_type ~ '^[a-z][a-z0-9_-]{0,62}$'),
  -- Given by name; the trigger fills in the number.
  source text not null references pgfresh.sources (name) on update cascade,
  source_id int not null references pgfresh.sources,
  fetcher text check (fetcher ~ '^[A-Za-z][A-Za-z0-9_.-]{0,99}$'),

  -- The table that mirrors the provider. A key of several columns is written with | between them.
  table_name text not null,
  key_columns text[] not null default '{key}' check (cardinality(key_columns) between 1 and 8),
  timestamp_column text not null,

  -- How old is too old. There is no default, because nobody else can know it.
  ttl interval not null check (ttl > '0' and ttl <= '3660 days'),
  -- A column that says it for single rows, as an interval or in whole minutes.
  ttl_column text,
  -- How long the answer that there is nothing is good for; the ttl if null.
  empty_ttl interval check (empty_ttl > '0' and empty_ttl <= '3660 days'),
  staleness_function text not null default 'pgfresh.is_data_stale',

  refresh_strategy text not null default 'on-demand' check (refresh_strategy in ('on-demand', 'scheduled')),
  refresh_schedule text check (refresh_schedule <> ''),
  schedule_zone text not null default 'UTC',
  check ((refresh_strategy = 'scheduled') = (refresh_schedule is not null)),

  -- Which keys there are: those of a table, or those that match a pattern; any, if neither is given.
  key_table text,
  key_table_column text,
  key_active_column text,
  key_pattern text,
  normalise text not null default 'none' check (normalise in ('none', 'upper', 'lower')),
  check ((key_table is null) = (key_table_column is null)),
  check (key_table is not null or key_active_column is null),
  check (key_table is null or key_pattern is null),
  -- A cycle walks over all keys, so it must know them.
  check (refresh_strategy <> 'scheduled' or key_table is not null),

  -- A closed gate holds back refreshes of what is there already:
  -- (key text, data_type text) returns boolean, and when it opens.
  gate_function text,
  gate_opens_function text,
  check (gate_function is not null or gate_opens_function is null),

  -- Below so many viewers the priority is this, and above it the number of viewers.
  background_priority int check (background_priority between 0 and 1000000),
  ui_threshold int check (ui_threshold between 1 and 1000000),
  check ((background_priority is null) = (ui_threshold is null)),

  -- Data types whose row of the same key must be there first.
  depends_on text[] not null default '{}' check (cardinality(depends_on) <= 16),

  estimated_data_size_bytes bigint not null default 0 check (estimated_data_size_bytes between 0 and 1000000000000000),
  source_timestamp_field text check (source_timestamp_field <> ''),
  max_retries int not null default 3 check (max_retries between 0 and 100),
  -- A job without progress for so long is taken back.
  -- Bounded, because recovery subtracts it from the time for all types at once.
  max_run interval not null default '300 seconds' check (max_run > '0' and max_run <= '30 days'),
  visibility text not null default 'shared' check (visibility in ('shared', 'rls')),
  managed_by text not null default 'sql' check (managed_by in ('config', 'sql')),
  created_at timestamptz not null default clock_timestamp()
);
create index on pgfresh.data_type_registry (source_id);
comment on table pgfresh.data_type_registry is
  'One row a data type: where it lives, when it is stale, how it is fetched and what it may cost.';

-- What the names of a registry row meant when it was written, to be compared with what they mean when they are used.
create table pgfresh.type_resolution (
  type_id int primary key references pgfresh.data_type_registry (type_id) on delete cascade,
  fingerprint jsonb not null,
  -- The statements that ask the user's tables and functions, with every name in them resolved and quoted.
  check_sql text not null,
  missing_sql text not null,
  rows_sql text,
  gate_sql text,
  keys_sql text,
  unknown_sql text,
  -- What of the catalog it was made of, and in which versions; see catalog_stamps.
  tables oid[] not null,
  columns name[] not null,
  functions name[] not null,
  stamp text
);
comment on table pgfresh.type_resolution is 'What each registry row refers to, and the statements made of it.';

create table pgfresh.type_dependency (
  type_id int not null references pgfresh.data_type_registry (type_id) on delete cascade,
  needs_id int not null references pgfresh.data_type_registry (type_id) on delete cascade,
  primary key (needs_id, type_id)
);
comment on table pgfresh.type_dependency is 'Which data type needs which, by number.';

create table pgfresh.warnings (
  code text not null,
  subject text not null,
  message text not null,
  next_step text not null,
  first_at timestamptz not null,
  last_at timestamptz not null,
  count bigint not null default 1,
  primary key (code, subject)
);
create index on pgfresh.warnings (last_at);
comment on table pgfresh.warnings is
  'What is not an error but should not stay unseen: one row for each kind and subject, with how often and when.';
