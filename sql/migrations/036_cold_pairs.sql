-- The end of a job tells the gateways itself when it commits; then the pump need not.
alter table pgfresh_engine.change add column told boolean not null default false;

-- want_pairs does what both did.
drop function if exists pgfresh_engine.admit_pairs(text[], text[]);
drop function if exists pgfresh_engine.check_pairs(text[], text[]);
