-- Functions and views whose result or arguments have changed; the files of functions make them anew.
drop view if exists pgfresh.source_health;
drop function if exists pgfresh.note_failure(int, bigint[], int, text, timestamptz);
drop function if exists pgfresh.note_success(int, bigint[], timestamptz);

alter table pgfresh.sources
  drop constraint sources_recent_retries_check,
  add check (cardinality(recent_retries) <= 200),
  drop constraint sources_paused_by_check,
  add check (paused_by in ('person', 'provider', 'breaker', 'credentials')),
  -- The breaker opens after so many failures in a row, or twice as many retries within the window.
  add column breaker_failures int not null default 5 check (breaker_failures between 1 and 100),
  add column breaker_window interval not null default '10 minutes'
    check (breaker_window between '1 second' and '1 day'),
  add column breaker_pause interval not null default '5 minutes' check (breaker_pause between '1 second' and '1 day'),
  -- When the first failure of the streak was recorded.
  add column streak_since timestamptz,
  -- API keys that the provider does not accept: only a probe uses one of them.
  add column denied_keys smallint[] not null default '{}',
  -- Who writes its limits: the configuration, or whoever writes this table.
  add column managed_by text not null default 'sql' check (managed_by in ('config', 'sql')),
  -- What the configuration says, by column; and what of it was changed here: value, config_value, by, at, reason.
  add column config jsonb not null default '{}',
  add column overrides jsonb not null default '{}';

-- With which API key it runs, so that its end can tell whose fault it is.
alter table pgfresh.job add column api_key smallint;

/*
  What is wrong with a part of a source: with one of its API keys, or with one data type. Nearly always empty, so ends
  and claims can ask it each time. A probe takes the pause with it: whoever claims one moves paused_until ahead, so
  there is never a second one, and the next comes by itself if nothing is heard of it.
*/
create table pgfresh.breaker (
  -- Either an API key of a source, or a data type.
  source_id int references pgfresh.sources on delete cascade,
  api_key smallint,
  type_id int references pgfresh.data_type_registry (type_id) on delete cascade,
  kind text not null check (kind in ('denied', 'refused', 'older_source')),
  -- What failed in a row.
  streak text[] not null,
  opened_at timestamptz,
  paused_until timestamptz,
  reason text,
  check (num_nonnulls(source_id, api_key) = case when type_id is null then 2 else 0 end),
  unique nulls not distinct (type_id, source_id, api_key)
);
create index on pgfresh.breaker (source_id);
comment on table pgfresh.breaker is
  'API keys that are refused, and data types whose answers are: how often in a row, and until when each is left alone.';

-- Which due times come from an obstacle, so that its pairs are found by the index of due times when it ends early.
create table pgfresh.hold (
  type_id int not null references pgfresh.data_type_registry (type_id) on delete cascade,
  until timestamptz not null,
  reason text not null,
  -- Of a gate: when it was last asked, and about which key last.
  asked_at timestamptz not null,
  asked_key text collate "C" not null default '',
  primary key (type_id, until)
);
comment on table pgfresh.hold is 'Pairs that an obstacle keeps from being planned, by data type and due time.';
