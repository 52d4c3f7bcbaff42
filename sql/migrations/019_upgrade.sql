/*
  Ends and ticks write these rows while they have jobs and pairs; who deletes a data type has its row, and waits for
  those jobs and pairs. A foreign key would make each wait for the other, so forget_type deletes them instead.
*/
alter table pgfresh.hold drop constraint hold_type_id_fkey;
alter table pgfresh.breaker drop constraint breaker_type_id_fkey;
alter table pgfresh.type_losses drop constraint type_losses_type_id_fkey;
alter table pgfresh.type_stats drop constraint type_stats_type_id_fkey;
alter table pgfresh.refused_answer drop constraint refused_answer_type_id_fkey;

-- What an earlier version knew as unchanged was confirmed then, however old its row is.
update pgfresh.pairs set confirmed_at = ok_at where outcome = 'unchanged' and confirmed_at is null and not seen;
