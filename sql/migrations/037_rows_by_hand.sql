/*
  What only people decide is a row that they write, not a function that they call: a stop of all spending, and
  corrections
  of the ledger.
*/
alter table pgfresh.spending_stop add column stopped_by text;

alter table pgfresh_engine.usage_correction set schema pgfresh;
alter table pgfresh.usage_correction rename to usage_corrections;
alter table pgfresh.usage_corrections rename column at to corrected_at;
alter table pgfresh.usage_corrections
  -- The provider's figure may be the ledger's.
  drop constraint usage_correction_bytes_check,
  add column source text,
  add column provider_bytes bigint,
  add column since timestamptz;
update pgfresh.usage_corrections as c set source = s.name from pgfresh.sources as s where s.id = c.source_id;
alter table pgfresh.usage_corrections alter column source set not null;
comment on table pgfresh.usage_corrections is
  'Signed entries by which the ledger was brought in line with the provider. Insert source, reason and either bytes, '
  'which are added, or provider_bytes: what the provider says was used since a time, by default since the window '
  'of the quota began; then the difference to the ledger is added.';
comment on table pgfresh.spending_stop is
  'While it has a row, nothing is spent: no source is claimed from or planned for. What runs goes on. '
  'Insert a reason to stop, delete the row to go on.';
