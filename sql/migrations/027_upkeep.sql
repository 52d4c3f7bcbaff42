alter table pgfresh.refresh_cycle
  -- Keys whose pairs were locked when their turn came, and are asked for again.
  add column busy_keys text[] not null default '{}',
  -- Whether all keys have had their turn; the round ends when no busy ones are left.
  add column walked boolean not null default false;

-- Where the search for pairs to forget goes on.
create table pgfresh.pruning (
  single boolean primary key default true check (single),
  type_id int not null default 0,
  key text collate "C" not null default ''
);
insert into pgfresh.pruning default values;
comment on table pgfresh.pruning is 'Where the next search for pairs to forget goes on.';
