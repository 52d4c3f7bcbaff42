/*
  The rules of a table that users write are its check constraints. This reports violations with a code and a
  next step before the constraint is checked: by the constraint's comment, or else its text.
*/
create or replace function pgfresh_engine.refuse_broken_rules() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_values jsonb := to_jsonb(new);
  v_hint text := format(
    'Correct the row of %s; docs/reference/configuration.md says what each column means.', tg_relid::regclass);
  v_rule record;
  v_holds boolean;
  v_absent text := (
    select a.attname
    from pg_attribute as a
    where a.attrelid = tg_relid and a.attnum > 0 and not a.attisdropped and a.attnotnull and a.attgenerated = ''
      and v_values ->> a.attname is null
    order by a.attnum
    limit 1
  );
begin
  if v_absent is not null then
    perform pgfresh_engine.refuse(tg_argv[0], format('%s must not be null', v_absent), v_hint);
  end if;
  for v_rule in
    select pg_get_expr(c.conbin, c.conrelid) as expression, obj_description(c.oid, 'pg_constraint') as words,
      string_agg(a.attname, ', ' order by a.attnum) as columns,
      string_agg(coalesce(left(v_values ->> a.attname, 80), 'null'), ', ' order by a.attnum) as got
    from pg_constraint as c
    join pg_attribute as a on a.attrelid = c.conrelid and a.attnum = any (c.conkey)
    where c.conrelid = tg_relid and c.contype = 'c'
    group by c.oid
    order by c.conname
  loop
    execute format('select %s from (select ($1).*) as r', v_rule.expression) into v_holds using new;
    continue when v_holds is not false;
    perform pgfresh_engine.refuse(tg_argv[0],
      format('%s: %s, got %s',
        v_rule.columns,
        coalesce(
          split_part(v_rule.words, E'\n', 1),
          -- As people write it: without casts, and without parentheses around each comparison.
          'expected ' || regexp_replace(
            regexp_replace(
              replace(replace(v_rule.expression, '= ANY (ARRAY[', 'one of '), '])', ''), '::[a-z]+', '', 'g'),
            '[()]', '', 'g')),
        v_rule.got),
      coalesce(nullif(split_part(v_rule.words, E'\n', 2), ''), v_hint));
  end loop;
  return new;
end
$$;
comment on function pgfresh_engine.refuse_broken_rules() is
  'Trigger of tables that people write: says what is wrong with a row and what to do, with a code. '
  'Its argument is the code.';
