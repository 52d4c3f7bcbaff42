create or replace function pgfresh_engine.refuse(p_code text, p_message text, p_hint text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  -- The message quotes what was passed, and must stay one line.
  raise exception using errcode = 'PGF01',
    message = p_code || ': ' || regexp_replace(p_message, '[[:cntrl:]]', '?', 'g'), hint = p_hint;
end
$$;
comment on function pgfresh_engine.refuse(text, text, text) is
  'Ends the statement with one of pgfresh''s coded errors, SQLSTATE PGF01.';
grant execute on function pgfresh_engine.refuse(text, text, text)
to pgfresh_evaluator, pgfresh_scheduler, pgfresh_operator;

create or replace function pgfresh_engine.require_key(p_key text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if not pgfresh_engine.is_valid_key(p_key) then
    perform pgfresh_engine.refuse('PGF_KEY_INVALID',
      format('a key has 1 to 512 bytes and no control characters, got %s',
        coalesce(left(quote_literal(p_key), 60), 'null')),
      'Pass the key as the provider writes it, for instance AAPL.');
  end if;
end
$$;
comment on function pgfresh_engine.require_key(text) is 'Refuses what cannot be a key.';

create or replace function pgfresh_engine.require_type(p_data_type text) returns pgfresh.data_type_registry
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry;
begin
  select * into v_type from pgfresh.data_type_registry where data_type = p_data_type;
  if not found then
    perform pgfresh_engine.refuse('PGF_TYPE_UNKNOWN',
      format('there is no data type %s', coalesce(left(quote_literal(p_data_type), 80), 'null')),
      'The known ones: select data_type from pgfresh.data_type_registry.');
  end if;
  return v_type;
end
$$;
comment on function pgfresh_engine.require_type(text) is
  'The registry''s row of a data type; refuses one that is not there.';

create or replace function pgfresh_engine.require_source(p_source text) returns pgfresh.sources
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources;
begin
  select * into v_source from pgfresh.sources where name = p_source;
  if not found then
    perform pgfresh_engine.refuse('PGF_SOURCE_UNKNOWN',
      format('there is no source %s', coalesce(left(quote_literal(p_source), 80), 'null')),
      'The known ones: select name from pgfresh.sources.');
  end if;
  return v_source;
end
$$;
comment on function pgfresh_engine.require_source(text) is 'A source by its name; refuses one that is not there.';

create or replace function pgfresh_engine.require_outcome(p_outcome text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_outcome is null or p_outcome !~ '^[a-z][a-z0-9_]{0,59}$' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_outcome must be a word of 1 to 60 lower-case letters, digits and underscores, got %s',
        coalesce(left(quote_literal(p_outcome), 60), 'null')),
      'For instance fresh, unchanged or empty.');
  end if;
end
$$;
comment on function pgfresh_engine.require_outcome(text) is 'Refuses what cannot be the name of an outcome.';

create or replace function pgfresh_engine.require_worker_name(p_argument text, p_name text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_name, '') = '' or length(p_name) > 200 or p_name ~ '[[:cntrl:]]' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('%s must have 1 to 200 characters, and no control characters', p_argument),
      'For instance the host and the process id.');
  end if;
end
$$;
comment on function pgfresh_engine.require_worker_name(text, text) is 'Refuses what cannot be the name of a worker.';

create or replace function pgfresh_engine.require_reason(p_name text, p_reason text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_reason, '') = '' or length(p_reason) > 1000 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('%s must have 1 to 1000 characters, got %s', p_name, coalesce(left(quote_literal(p_reason), 60), 'null')),
      'Say why, in a sentence that others understand.');
  end if;
end
$$;
comment on function pgfresh_engine.require_reason(text, text) is 'Refuses what is no reason.';

create or replace function pgfresh_engine.require_range(p_name text, p_value numeric, p_low numeric, p_high numeric)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_value is null or p_value < p_low or p_value > p_high then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('%s must be from %s to %s, got %s', p_name, p_low, p_high, coalesce(p_value::text, 'null')),
      'Pass a value in that range.');
  end if;
end
$$;
comment on function pgfresh_engine.require_range(text, numeric, numeric, numeric) is
  'Refuses a number outside of its range, null included.';

create or replace function pgfresh_engine.require_primary() returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_is_in_recovery() then
    -- Not through refuse: viewers call this with their own rights, and may not use the engine's schema.
    raise exception using errcode = 'PGF01',
      message = 'PGF_STANDBY: this is a standby, whose clock and rows are behind',
      hint = 'Connect to the primary.';
  end if;
end
$$;
comment on function pgfresh_engine.require_primary() is 'Refuses to decide anything on a standby.';
grant execute on function pgfresh_engine.require_primary() to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator,
  pgfresh_scheduler, pgfresh_viewer;
