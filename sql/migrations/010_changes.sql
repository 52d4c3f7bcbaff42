/*
  What was written, until everybody who watches has heard of it. Unlogged: after a crash nobody knows what was in it,
  and then every watched pair is read again. The watched types go with it, and that is how it is noticed.
*/
create unlogged table pgfresh.change (
  xid xid8 not null default pg_current_xact_id(),
  type_id int not null,
  -- Null is every key of the type. So is an empty array, and then nobody knows by which transaction.
  keys text[]
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- Who reads on knows which transactions he has seen, and looks up the others.
create index on pgfresh.change (xid);
comment on table pgfresh.change is 'Marks of pairs whose rows or state were written, for ten seconds or so.';

create unlogged table pgfresh.watched_type (
  type_id int primary key,
  watched_until timestamptz not null,
  -- Since when, without a gap.
  since timestamptz not null,
  -- Whether all transactions have ended that may have written before they could see this row, and so without a mark.
  settled boolean not null default false
) with (fillfactor = 50);
comment on table pgfresh.watched_type is 'Data types that somebody watches. Only their changes are marked.';

-- Transaction numbers can go back in a crash, if commits were lost that did not wait for the disk.
-- Where the log stood then can not.
create unlogged table pgfresh.change_epoch (
  single boolean primary key default true check (single),
  epoch text collate "C" not null
);
comment on table pgfresh.change_epoch is 'How versions of pairs begin since the last crash or failover.';
