-- One open round per data type: of several, the newest is the one that goes on.
update pgfresh.refresh_cycle as c
set done_at = clock_timestamp()
where c.done_at is null and exists (
  select from pgfresh.refresh_cycle as n where n.type_id = c.type_id and n.slot > c.slot and n.done_at is null
);
drop index pgfresh.refresh_cycle_slot_type_id_idx;
create unique index refresh_cycle_open on pgfresh.refresh_cycle (type_id) where done_at is null;
alter table pgfresh.refresh_cycle
  -- A round that took over an open one begins where that stood, goes to the end,
  -- and then from the first key to this one.
  add column last_key text,
  add column wraps boolean not null default false,
  -- The round that took this one over before its end.
  add column next_slot timestamptz;

-- How many scheduled jobs of a source and data type wait, without reading those of others. Viewed jobs have no entry.
create index job_background on pgfresh.job (source_id, type_id) where band = -1 and state <> 'x';
