-- Which database the rows of this schema were written in. One that was restored or copied is another: follow_restore.
create table pgfresh_engine.database_identity (
  single boolean primary key default true check (single),
  -- What current_identity says.
  identity text not null,
  -- Since when; versions of pairs begin with it.
  since timestamptz not null
);
comment on table pgfresh_engine.database_identity is
  'The database that these rows belong to, by which one that was restored from a dump or copied is recognised.';
-- What it is, the functions say.
insert into pgfresh_engine.database_identity (identity, since) values ('', clock_timestamp());
-- Versions begin in another way now. Marks of transactions to come are those of a database that was restored before.
delete from pgfresh_engine.change_epoch;
delete from pgfresh_engine.change where xid > pg_current_xact_id();

-- Tables are recognised by their names from now on.
update pgfresh_engine.type_resolution as t
set stamp = null, fingerprint = t.fingerprint || (
  select jsonb_object_agg(m.named, coalesce(m.mark, t.fingerprint -> m.named))
  from (
    select n.named, to_jsonb((
      select case c.relkind
          when 'v' then 'view' when 'm' then 'materialized view' when 'f' then 'foreign table' else 'table'
        end || ' ' || c.oid::regclass
      from pg_class as c
      join pg_namespace as s on s.oid = c.relnamespace
      where (s.nspname, c.relname) = (
          case when position('.' in n.name) > 0 then split_part(n.name, '.', 1) else 'public' end,
          case when position('.' in n.name) > 0 then split_part(n.name, '.', 2) else n.name end)
        and c.relkind in ('r', 'p', 'v', 'm', 'f')
    )) as mark
    from (values ('table_name', r.table_name), ('key_table', r.key_table)) as n(named, name)
  ) as m)
from pgfresh.data_type_registry as r
where r.type_id = t.type_id;

-- And the owners of jobs' functions.
alter table pgfresh.scheduled_jobs disable trigger user;
update pgfresh.scheduled_jobs
set resolution = resolution || jsonb_build_object('owner_name', (resolution ->> 'owner')::oid::regrole::text)
where resolution is not null;
alter table pgfresh.scheduled_jobs enable trigger user;
