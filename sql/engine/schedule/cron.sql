/*
  Whether a cron expression is valid, and ever matches. Only TypeScript computes the times: SQL would use the server's
  time zone data, and "at time zone" picks the second of two repeated hours. A test compares the two
  parsers.
*/
create or replace function pgfresh_engine.read_cron_value(p_field text, p_text text, out value int, out problem text)
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_low int := case when p_field in ('day of month', 'month') then 1 else 0 end;
  v_high int := case p_field
    when 'minute' then 59
    when 'hour' then 23
    when 'day of month' then 31
    when 'month' then 12
    else 7
  end;
  v_names text[] := case p_field
    when 'month' then '{JAN,FEB,MAR,APR,MAY,JUN,JUL,AUG,SEP,OCT,NOV,DEC}'
    when 'day of week' then '{SUN,MON,TUE,WED,THU,FRI,SAT}'
    else '{}'
  end::text[];
begin
  value := case
    when p_text ~ '^[0-9]{1,4}$' then p_text::int
    else array_position(v_names, upper(p_text collate "C")) - 1 + v_low
  end;
  if value is null or value < v_low or value > v_high then
    value := null;
    problem := format('%s %s: expected %s to %s%s, or *', p_field, quote_literal(left(p_text, 40)), v_low, v_high,
      case when v_names <> '{}' then format(' or %s to %s', v_names[1], v_names[cardinality(v_names)]) else '' end);
  end if;
end
$$;
comment on function pgfresh_engine.read_cron_value(text, text) is
  'The number that a word of a cron field stands for, or what is wrong with it.';

create or replace function pgfresh_engine.read_cron_field(p_field text, p_text text, out list int[], out problem text)
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_weekday boolean := p_field = 'day of week';
  v_low int := case when p_field in ('day of month', 'month') then 1 else 0 end;
  v_last int := case p_field
    when 'minute' then 59
    when 'hour' then 23
    when 'day of month' then 31
    when 'month' then 12
    else 6
  end;
  v_term text;
  v_step text[];
  v_range text[];
  v_from int;
  v_to int;
begin
  list := '{}';
  foreach v_term in array string_to_array(p_text, ',') loop
    v_step := string_to_array(v_term, '/');
    v_range := string_to_array(v_step[1], '-');
    if cardinality(v_step) > 2 or cardinality(v_range) > 2 then
      problem := format('%s %s: expected one range and one step, such as %s-%s/2',
        p_field, quote_literal(left(v_term, 40)), v_low, v_last);
    elsif cardinality(v_step) = 2
        and not (v_step[2] ~ '^[0-9]{1,4}$' and v_step[2]::int between 1 and v_last - v_low + 1) then
      problem := format('%s %s: expected a step from 1 to %s',
        p_field, quote_literal(left(v_term, 40)), v_last - v_low + 1);
    elsif v_step[1] in ('*', '?') then
      v_from := v_low;
      v_to := v_last;
    else
      select r.value, r.problem
      into v_from, problem
      from pgfresh_engine.read_cron_value(p_field, coalesce(v_range[1], '')) as r;
      v_to := case when cardinality(v_step) = 2 then greatest(v_from, v_last) else v_from end;
      if problem is null and cardinality(v_range) = 2 then
        select r.value, r.problem into v_to, problem from pgfresh_engine.read_cron_value(p_field, v_range[2]) as r;
        -- Sunday has two numbers, and a range takes the one that fits.
        if v_weekday and v_from > v_to and v_to = 0 then
          v_to := 7;
        elsif v_weekday and v_from > v_to and v_from = 7 then
          v_from := 0;
        elsif v_from > v_to then
          problem := format('%s %s: expected a range that goes up', p_field, quote_literal(left(v_term, 40)));
        end if;
      end if;
    end if;
    if problem is not null then
      list := null;
      return;
    end if;
    list := list || array(
      select case when v_weekday then n % 7 else n end
      from generate_series(v_from, v_to, coalesce(v_step[2], '1')::int) as n
    );
  end loop;
  if cardinality(list) = 0 then
    list := null;
    problem := format('%s is empty', p_field);
  end if;
end
$$;
comment on function pgfresh_engine.read_cron_field(text, text) is
  'The numbers that a field of a cron expression means, or what is wrong with it.';

create or replace function pgfresh_engine.cron_problem(p_schedule text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  -- The characters that TypeScript treats as white space, whatever the server's locale.
  v_space constant text := E'[\t\n\u000b\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]';
  v_text text;
  v_words constant jsonb :=
    '{"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", '
    '"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *"}';
  v_fields text[];
  v_problem text;
  v_months int[];
  v_days int[] := '{}';
  v_weekdays int[] := '{}';
  v_special text[];
  v_plain text;
  v_first date;
begin
  -- Fast path for the simple ones, which most are: each field is a number or a star, and every month has the day
  -- in question.
  if p_schedule ~ '^([*](/([1-9]|[1-5][0-9]))?|[1-5]?[0-9]) ([*](/([1-9]|1[0-9]|2[0-4]))?|1?[0-9]|2[0-3]) '
      '([*]|[1-9]|1[0-9]|2[0-8]) ([*]|[1-9]|1[0-2]) ([*]|[0-7])$' then
    return null;
  end if;
  if p_schedule is null or length(p_schedule) > 500 then
    return format('expected at most 500 characters, got %s', coalesce(length(p_schedule)::text, 'null'));
  end if;
  v_text := regexp_replace(p_schedule, '^' || v_space || '+|' || v_space || '+$', '', 'g');
  if v_text like '@%' then
    v_text := v_words ->> lower(v_text collate "C");
    if v_text is null then
      return case
        when lower(p_schedule) like '%@reboot%' then 'a schedule has times, and @reboot has none'
        else format('there is no word %s; '
          'expected one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly',
          quote_literal(left(p_schedule, 40)))
      end;
    end if;
  end if;
  v_fields := case when v_text = '' then '{}'::text[] else regexp_split_to_array(v_text, v_space || '+') end;
  if cardinality(v_fields) <> 5 then
    return format('expected five fields, got %s%s', cardinality(v_fields),
      case
        when cardinality(v_fields) = 6 then
          format('; seconds and years are not kept: did you mean %s?',
            quote_literal(left(array_to_string(v_fields[2:], ' '), 60)))
        else ''
      end);
  end if;
  v_problem := coalesce(
    (pgfresh_engine.read_cron_field('minute', v_fields[1])).problem,
      (pgfresh_engine.read_cron_field('hour', v_fields[2])).problem);
  if v_problem is not null then
    return v_problem;
  end if;
  -- L is the last day of the month. Of weekdays, 2#1 is the first Tuesday and 2#L the last one.
  v_plain := array_to_string(
    array(select t from unnest(string_to_array(v_fields[3], ',')) as t where upper(t collate "C") <> 'L'), ',');
  if v_plain <> '' or v_fields[3] !~* '^L(,L)*$' then
    select f.list, f.problem
    into v_days, v_problem
    from pgfresh_engine.read_cron_field('day of month', case when v_plain = '' then v_fields[3] else v_plain end) as f;
  end if;
  if v_problem is null then
    select f.list, f.problem into v_months, v_problem from pgfresh_engine.read_cron_field('month', v_fields[4]) as f;
  end if;
  v_special := array(
    select upper(t collate "C") from unnest(string_to_array(v_fields[5], ',')) as t where t like '%#%');
  v_plain := array_to_string(
    array(select t from unnest(string_to_array(v_fields[5], ',')) as t where t not like '%#%'), ',');
  if v_problem is null and (v_plain <> '' or cardinality(v_special) = 0 or v_fields[5] ~ '^,|,,|,$') then
    select f.list, f.problem
    into v_weekdays, v_problem
    from pgfresh_engine.read_cron_field(
      'day of week', case when v_fields[5] ~ '^,|,,|,$' then v_fields[5] else v_plain end) as f;
  end if;
  v_problem := coalesce(v_problem, (
    select coalesce(
      case
        when t !~ '^[^#]*#[1-5L]$' then
          format('day of week %s: expected a day, # and 1 to 5 or L, such as MON#1', quote_literal(left(t, 40)))
      end,
      (pgfresh_engine.read_cron_value('day of week', split_part(t, '#', 1))).problem) as problem
    from unnest(v_special) as t
    order by 1
    limit 1
  ));
  if v_problem is not null then
    return v_problem;
  end if;
  v_special := array(
    select (pgfresh_engine.read_cron_value('day of week', split_part(t, '#', 1))).value % 7 || split_part(t, '#', 2)
    from unnest(v_special) as t
  );
  -- Most expressions match every year, because each month has 28 days and each weekday four times. For the others,
  -- check the days of eight years.
  if v_fields[3] in ('*', '?') and v_fields[5] in ('*', '?')
      or v_fields[3] not in ('*', '?') and (28 >= any (v_days) or v_fields[3] ~* '(^|,)L(,|$)')
      or v_fields[5] not in ('*', '?')
      and (cardinality(v_weekdays) > 0 or exists (select from unnest(v_special) as t where t !~ '5$')) then
    return null;
  end if;
  v_first := (pgfresh.clock() at time zone 'UTC')::date;
  if exists (
    select from generate_series(v_first, v_first + interval '8 years', interval '1 day') as d(at),
      lateral (
        select extract(day from at)::int as day, extract(dow from at)::int as weekday,
          extract(month from at)::int as month,
          extract(month from at + interval '1 day') <> extract(month from at) as last_day,
          extract(month from at + interval '7 days') <> extract(month from at) as last_week
      ) as p
    where p.month = any (v_months) and (
      v_fields[3] not in ('*', '?') and (p.day = any (v_days) or (p.last_day and v_fields[3] ~* '(^|,)L(,|$)'))
      or v_fields[5] not in ('*', '?') and (
        p.weekday = any (v_weekdays)
        or p.weekday || ((p.day + 6) / 7)::text = any (v_special)
        or (p.last_week and p.weekday || 'L' = any (v_special))
      )
    )
  ) then
    return null;
  end if;
  return 'it has no occurrence within 8 years';
end
$$;
comment on function pgfresh_engine.cron_problem(text) is
  'Why a text cannot be the schedule of a job, or null if it can: '
  'five fields of cron, or a word such as @daily, that comes within eight years.';

create or replace function pgfresh_engine.is_time_zone(p_name text) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_name = 'UTC' then
    return true;
  end if;
  if p_name is null or p_name !~ '^[A-Za-z][A-Za-z0-9_+/-]{0,99}$'
      or p_name ~* '^(posix|right)/|^(localtime|posixrules|factory)$' then
    return false;
  end if;
  /*
    The list of all zones reads hundreds of files, and "at time zone" accepts names that are not in it: offsets such as
    Any/Thing5, which have a digit, and abbreviations such as PST, which have no slash. So only names like these are
    searched in the list.
  */
  if p_name ~ '[0-9]' or p_name !~ '/' then
    return exists (select from pg_timezone_names where lower(name) = lower(p_name));
  end if;
  perform now() at time zone p_name;
  return true;
exception when invalid_parameter_value then
  return false;
end
$$;
comment on function pgfresh_engine.is_time_zone(text) is
  'Whether the server knows a time zone of this name of the IANA database.';
