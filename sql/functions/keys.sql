/*
  The one definition of how a key is spelled: only A to Z have two cases here. What else has a capital letter depends on
  the server's version and collation and on who is asked, and a key must be the same for all of them. canonicalKey in
  src/registry is the same in TypeScript.
*/
create or replace function pgfresh.canonical_key(p_key text, p_normalise text) returns text
language sql immutable parallel safe
as $$
  select case p_normalise
    when 'upper' then pg_catalog.upper(p_key collate pg_catalog."C")
    when 'lower' then pg_catalog.lower(p_key collate pg_catalog."C")
    else p_key
  end
$$;
comment on function pgfresh.canonical_key(text, text) is
  'A key in the case of its data type (upper, lower or none). Only the letters A to Z are changed.';
