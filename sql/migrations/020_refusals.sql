-- Pairs whose last refresh failed because of the answer's form, so that they are found when their data type recovers.
-- Whether a pair is still held its own row says. No foreign key, as for the breaker.
create table pgfresh.refused_pair (
  type_id int not null,
  key text collate "C" not null,
  -- When its hold last ended because the type had recovered. That is done once until it succeeds.
  released_at timestamptz,
  primary key (type_id, key)
);
comment on table pgfresh.refused_pair is
  'Pairs whose answers were refused, which are asked for again when their data type recovers.';
