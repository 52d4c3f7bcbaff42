-- Attempts that did not end their job, so that each call of a job is in the history and not only the last one.
-- A tree of its own: a job that succeeds at once writes nothing here, and the other two have one row for each job.
create table pgfresh.history_attempt (like pgfresh.history_succeeded including defaults) partition by range (ended_at);
comment on table pgfresh.history_attempt is
  'Attempts after which their job was tried again, by day. The last attempt of a job is in one of the other two trees.';
create index on pgfresh.history_attempt (id);
create index on pgfresh.history_attempt (type_id, key, ended_at);
create table pgfresh.history_attempt_default partition of pgfresh.history_attempt default;

-- The column that says how old data is at its source is validated from now on, and looked up anew where registered.
update pgfresh.type_resolution as t
set columns = t.columns || r.source_timestamp_field::name, stamp = null
from pgfresh.data_type_registry as r
where r.type_id = t.type_id and r.source_timestamp_field is not null;

alter table pgfresh.data_type_registry
  -- What an answer that there is nothing does to the rows of its key; null: what the fetcher's way of writing says.
  add column empty_rows text constraint empty_rows_known check (empty_rows in ('keep', 'delete')),
  -- The share of rows that may go at once; an answer beyond it is refused as suspicious.
  add column max_deletes numeric not null default 0.25
    constraint max_deletes_is_share check (max_deletes between 0 and 1),
  -- Rows of keys that nobody has viewed for so long are deleted; null: never.
  add column evict_after interval constraint evict_after_range check (evict_after between '1 hour' and '3660 days'),
  -- A schedule would fetch again what was evicted.
  add constraint evict_after_on_demand check (evict_after is null or refresh_strategy = 'on-demand');
comment on constraint empty_rows_known on pgfresh.data_type_registry is
  E'expected keep or delete\nSay what becomes of the rows of a key for which there is nothing, or leave it out.';
comment on constraint max_deletes_is_share on pgfresh.data_type_registry is
  E'expected a share from 0 to 1\nFor instance 0.25: a quarter of the rows may go at once.';
comment on constraint evict_after_range on pgfresh.data_type_registry is
  E'expected an interval from 1 hour to 3660 days\nFor instance 30 days, or leave it out.';
comment on constraint evict_after_on_demand on pgfresh.data_type_registry is
  E'expected no schedule beside evict_after: it would fetch again what was evicted\nLeave out one of them.';

-- How many rows answers have taken away lately, so that a provider that lies about many keys is stopped in time.
create table pgfresh.type_losses (
  type_id int primary key references pgfresh.data_type_registry (type_id) on delete cascade,
  since timestamptz not null,
  lost bigint not null,
  -- When an answer was last refused because too many rows had gone.
  refused_at timestamptz
) with (fillfactor = 50);
comment on table pgfresh.type_losses is
  'Rows of each data type that answers have taken away since a time; see max_deletes of the registry.';

-- Since when nobody has viewed the pair; null while somebody does, and for one that was never viewed.
alter table pgfresh.pairs add column unviewed_since timestamptz;
-- Where the search for rows to evict goes on.
create table pgfresh.eviction (
  type_id int primary key references pgfresh.data_type_registry (type_id) on delete cascade,
  cursor_key text collate "C" not null
);
comment on table pgfresh.eviction is 'Where the next search for rows to evict goes on, for each data type.';
