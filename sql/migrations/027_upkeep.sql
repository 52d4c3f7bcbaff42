alter table pgfresh.refresh_cycle
  -- Keys whose pairs were locked when their turn came, and are asked for again.
  add column busy_keys text[] not null default '{}',
  -- Whether all keys have had their turn; the round ends when no busy ones are left.
  add column walked boolean not null default false;
