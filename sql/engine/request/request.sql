/*
  What viewers and applications ask for. A function that runs with the rights of its owner does not know its caller, and
  linters of hosted databases warn of every such function that users may execute. So their functions run with the rights
  of the caller and insert a row into this view. Its first trigger notes the caller, also with the rights of the caller;
  the second one acts, with the rights of the owner. Neither can be executed by itself.

  The bodies of those functions are parsed, so they depend on the columns of this view. An upgrade that changes a column
  drops and makes all of them anew, and is refused if an object of a user depends on one of them. So what a request
  needs goes into args, and a new column comes last.
*/
create or replace view pgfresh_engine.request as
select null::text as verb, null::jsonb as args, null::name as caller, null::jsonb as answer
where false;
comment on view pgfresh_engine.request is
  'Where the functions that run with the rights of their caller put what they are asked for; it has no rows.';
-- Not the caller, though it would be overwritten.
grant insert (verb, args), select (answer) on pgfresh_engine.request to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator,
  pgfresh_scheduler, pgfresh_viewer;
grant select on pgfresh_engine.request to pgfresh_monitor, pgfresh_operator;

create or replace function pgfresh_engine.note_caller() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  new.caller := current_user;
  return new;
end
$$;
comment on function pgfresh_engine.note_caller() is
  'First trigger of the view request: notes the caller, with whose rights it runs.';

create or replace function pgfresh_engine.act_on_request() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Who may use this schema can insert into the view without the function, so its grant decides here too.
  v_function regprocedure := case new.verb
    when 'subscribe' then 'pgfresh.upsert_active_subscription(text, text, text)'::regprocedure
    when 'subscribe_all' then 'pgfresh.upsert_active_subscriptions(jsonb, text)'::regprocedure
    when 'unsubscribe' then 'pgfresh.remove_active_subscription(text, text, text)'::regprocedure
    when 'check' then 'pgfresh.check_and_queue_stale_batch(text, text[])'::regprocedure
    when 'explain' then 'pgfresh.explain_pair(text, text)'::regprocedure
    when 'trigger' then 'pgfresh.trigger_scheduled_job(text, jsonb)'::regprocedure
    when 'cancel' then 'pgfresh.cancel_scheduled_run(bigint)'::regprocedure
    when 'backfill' then 'pgfresh.backfill_scheduled_job(text, timestamptz[], int)'::regprocedure
  end;
begin
  if has_function_privilege(new.caller, v_function, 'execute') is not true then
    raise exception using errcode = 'insufficient_privilege',
      message = format('permission denied for the request %s', coalesce(left(quote_literal(new.verb), 80), 'null')),
      hint = 'Ask the owner of the schema pgfresh for the right to execute the function of the same purpose.';
  end if;
  case new.verb
    when 'subscribe' then
      new.answer := pgfresh_engine.subscribe(
        new.caller, new.args ->> 'user_id', new.args ->> 'key', new.args ->> 'data_type');
    when 'subscribe_all' then
      new.answer := pgfresh_engine.subscribe_all(new.caller, new.args ->> 'user_id', new.args -> 'pairs');
    when 'unsubscribe' then
      new.answer := to_jsonb(pgfresh_engine.unsubscribe(
        new.caller, new.args ->> 'user_id', new.args ->> 'key', new.args ->> 'data_type'));
    when 'check' then
      new.answer := pgfresh_engine.check_key(new.caller, new.args ->> 'key',
        case
          when jsonb_typeof(new.args -> 'data_types') = 'array' then
            array(select jsonb_array_elements_text(new.args -> 'data_types'))
        end);
    when 'explain' then
      new.answer := pgfresh_engine.explain_to(new.caller, new.args ->> 'data_type', new.args ->> 'key');
    when 'trigger' then
      new.answer := pgfresh_engine.start_requested_run(new.args ->> 'name', new.args -> 'params', new.caller);
    when 'cancel' then
      new.answer := pgfresh_engine.cancel_requested_run((new.args ->> 'run_id')::bigint, new.caller);
    when 'backfill' then
      new.answer := pgfresh_engine.queue_requested_slots(new.args ->> 'name',
        case
          when jsonb_typeof(new.args -> 'slots') = 'array' then
            array(select s::timestamptz from jsonb_array_elements_text(new.args -> 'slots') as s)
        end,
        (new.args ->> 'per_minute')::int, new.caller);
  end case;
  return new;
end
$$;
comment on function pgfresh_engine.act_on_request() is
  'Second trigger of the view request: does what the caller asks for, if they may execute the function for it.';
create or replace trigger a_note_caller instead of insert on pgfresh_engine.request
  for each row execute function pgfresh_engine.note_caller();
create or replace trigger b_act instead of insert on pgfresh_engine.request
  for each row execute function pgfresh_engine.act_on_request();
