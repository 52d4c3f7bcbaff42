/*
  What pgfresh's planner is held against: a loop key by key and, within it, data type by data type, with a dynamic statement for each.
  It has the indexes that make each of its statements fast, and neither a limit of keys nor a time limit, so that it looks at everything.
*/
create schema reference;

create table reference.subscriptions (
  user_id text not null,
  key text not null,
  data_type text not null,
  primary key (user_id, key, data_type)
);
create index on reference.subscriptions (key, data_type);

create table reference.registry (
  data_type text primary key,
  table_name text not null,
  key_column text not null,
  timestamp_column text not null,
  staleness_function text not null,
  default_ttl_minutes int not null,
  refresh_strategy text not null,
  estimated_data_size_bytes bigint not null
);

create table reference.queue (
  id bigint generated always as identity primary key,
  key text not null,
  data_type text not null,
  status text not null,
  priority int not null,
  estimated_data_size_bytes bigint not null,
  created_at timestamptz not null default now()
);
create unique index on reference.queue (key, data_type) where status in ('pending', 'processing');

create function reference.is_valid_identifier(p_identifier text) returns boolean
language sql immutable as $$ select p_identifier ~ '^[a-zA-Z_][a-zA-Z0-9_]*$' $$;

create function reference.is_stale(p_fetched_at timestamptz, p_ttl_minutes int) returns boolean
language sql stable as $$ select p_fetched_at is null or p_fetched_at < now() - make_interval(mins => p_ttl_minutes) $$;

create function reference.is_quota_exceeded() returns boolean
language sql stable as $$ select false $$;

create function reference.check_and_queue_stale_data() returns void
language plpgsql
as $function$
declare
  v_key record;
  v_type record;
begin
  if not pg_try_advisory_lock(42) then
    return;
  end if;
  if reference.is_quota_exceeded() then
    perform pg_advisory_unlock(42);
    return;
  end if;
  for v_key in select distinct key from reference.subscriptions loop
    for v_type in
      select distinct r.* from reference.registry as r
      join reference.subscriptions as s on s.key = v_key.key and s.data_type = r.data_type
      where r.refresh_strategy = 'on-demand'
    loop
      if not reference.is_valid_identifier(v_type.table_name) or not reference.is_valid_identifier(v_type.key_column)
        or not reference.is_valid_identifier(v_type.timestamp_column) or not reference.is_valid_identifier(v_type.staleness_function) then
        continue;
      end if;
      begin
        execute format($sql$
          insert into reference.queue (key, data_type, status, priority, estimated_data_size_bytes)
          select %1$L, %2$L, 'pending', count(distinct s.user_id)::int, %3$L::bigint
          from reference.subscriptions as s left join %4$I as t on t.%5$I = s.key
          where s.key = %1$L and s.data_type = %2$L
            and (t.%5$I is null or reference.%6$I(t.%7$I, %8$L::int))
            and not exists (select from reference.queue as q where q.key = %1$L and q.data_type = %2$L and q.status in ('pending', 'processing'))
          group by s.key
          having count(distinct s.user_id) > 0
          on conflict do nothing
        $sql$, v_key.key, v_type.data_type, v_type.estimated_data_size_bytes, v_type.table_name, v_type.key_column,
          v_type.staleness_function, v_type.timestamp_column, v_type.default_ttl_minutes);
      exception when others then
        raise warning 'the check of % and % failed: %', v_key.key, v_type.data_type, sqlerrm;
      end;
    end loop;
  end loop;
  perform pg_advisory_unlock(42);
end
$function$;
