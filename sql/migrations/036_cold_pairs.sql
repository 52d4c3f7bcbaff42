-- The end of a job tells the gateways itself when it commits; then the pump need not.
alter table pgfresh_engine.change add column told boolean not null default false;
