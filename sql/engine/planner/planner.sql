create or replace function pgfresh_engine.priority_of(p_viewers int, p_ui_threshold int, p_background_priority int)
returns int
language sql immutable parallel safe
as $$ select case when p_viewers < p_ui_threshold then p_background_priority else p_viewers end $$;
comment on function pgfresh_engine.priority_of(int, int, int) is
  'The priority of a pair with so many viewers: '
  'their number, or below the type''s ui_threshold its background_priority.';

create or replace function pgfresh_engine.add_counts(variadic p_counts jsonb[]) returns jsonb
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(jsonb_object_agg(t.key, t.total), '{}')
  from (
    select e.key, sum(e.value::numeric) as total
    from unnest(p_counts) as c
    cross join lateral jsonb_each_text(c) as e
    group by e.key
  ) as t
$$;
comment on function pgfresh_engine.add_counts(jsonb[]) is 'Objects of counts as one.';

/*
  The obstacles that keep whole data types from being planned now, and until when; no row for types without one.
  Usually one statement answers for all of them: the names of a registry row are resolved again only
  if the catalog has changed.
*/
create or replace function pgfresh_engine.planning_obstacles(p_types int[], p_now timestamptz)
returns table (type_id int, reason text, until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_type record;
  v_problem record;
begin
  for v_type in
    select r as registered, res.stamp = now.stamp as same
    from pgfresh.data_type_registry as r
    join pgfresh.sources as s on s.id = r.source_id
    left join pgfresh_engine.type_resolution as res on res.type_id = r.type_id
    left join pgfresh_engine.catalog_stamps(p_types) as now on now.type_id = r.type_id
    where r.type_id = any (p_types)
      and ((res.stamp = now.stamp) is not true
        or not s.enabled or s.paused_until > p_now or s.quota_bytes is not null
        or exists (select from pgfresh_engine.breaker as b where b.type_id = r.type_id and b.paused_until > p_now)
        or exists (select from pgfresh_engine.type_timeout as t where t.type_id = r.type_id)
        or exists (select from pgfresh.spending_stop))
  loop
    type_id := (v_type.registered).type_id;
    if v_type.same is not true then
      select * into v_problem from pgfresh_engine.type_problem(v_type.registered);
      if found then
        perform pgfresh_engine.warn('type_unresolved', (v_type.registered).data_type, v_problem.problem,
          v_problem.next_step);
        reason := 'unresolved';
        until := p_now + interval '1 minute';
        return next;
        continue;
      end if;
    end if;
    select o.reason, o.until
    into reason, until
    from pgfresh_engine.type_obstacle((v_type.registered).type_id, (v_type.registered).source_id, p_now) as o;
    if found then
      return next;
    end if;
  end loop;
end
$$;
comment on function pgfresh_engine.planning_obstacles(int[], timestamptz) is
  'What keeps data types from being planned: unresolved, or what type_obstacle says.';
