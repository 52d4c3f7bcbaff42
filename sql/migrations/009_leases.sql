-- One row for each piece of work that one process at a time does when it is due. No index but that of the key, so that
-- taking, renewing and giving back a lease rewrite none.
create table pgfresh.refresh_schedule (
  function_name text collate "C" primary key check (function_name <> '' and octet_length(function_name) <= 200),
  enabled boolean not null default true,
  -- Null is due.
  next_run_at timestamptz,
  -- When the last run ended, and how.
  last_run_at timestamptz,
  last_status text check (last_status in ('success', 'failed')),
  failures_in_row int not null default 0,
  -- How long after a run the next one is due: a random time between the two.
  success_wait_min interval not null default '10 minutes' check (success_wait_min >= '0'),
  success_wait_max interval not null default '15 minutes'
    check (success_wait_max >= success_wait_min and success_wait_max <= '366 days'),
  failure_wait_min interval not null default '20 minutes' check (failure_wait_min >= '0'),
  failure_wait_max interval not null default '40 minutes'
    check (failure_wait_max >= failure_wait_min and failure_wait_max <= '366 days'),
  locked_until timestamptz,
  locked_by text,
  locked_at timestamptz,
  lock_token bigint not null default 0
) with (fillfactor = 50);
comment on table pgfresh.refresh_schedule is
  'Leases: who does each piece of work now and until when, when it is due, and how its last run ended.';

-- Of all leases together: a row that was deleted and made again must not hand out a token for the second time.
create sequence pgfresh.lock_token;
