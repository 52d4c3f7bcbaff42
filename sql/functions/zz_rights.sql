-- Loaded last by its name, and again after every change of another file, because a new function is for everybody until it is
-- said otherwise. Nothing is for everybody; what is for whom is said by name.
revoke all on all tables in schema pgfresh from public;
revoke all on all functions in schema pgfresh from public;
revoke all on all sequences in schema pgfresh from public;
