-- On Supabase, everybody who uses the API is a viewer.
do $$
declare
  v_role text;
begin
  for v_role in
    select rolname
    from pg_roles
    where rolname in ('anon', 'authenticated') and not pg_has_role(rolname, 'pgfresh_viewer', 'member')
  loop
    execute format('grant pgfresh_viewer to %I', v_role);
  end loop;
end
$$;
