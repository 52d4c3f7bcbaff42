comment on schema pgfresh is 'pgfresh: keeps tables that mirror metered APIs fresh for the people who look at them.';

-- Nobody gets anything by default; rights are given one by one, by function.
revoke all on schema pgfresh from public;
