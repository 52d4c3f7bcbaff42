-- It takes any number of objects now.
drop function if exists pgfresh.add_counts(jsonb, jsonb);
-- Whether a row was found is said by what was seen of it.
drop function if exists pgfresh.note_lapses(pgfresh.data_type_registry, pgfresh.look[], boolean[], timestamptz);
