import { noPlaces, registration, sources, types } from '../cast.ts';
import type { World } from '../world.ts';
import { change } from './operation.ts';

/** Puts everything back as the cast has it, as an operator would, and retries what has failed. */
export async function heal(world: World): Promise<void> {
  world.provider.behaveWell();
  world.pausedSince.clear();
  world.hanging.clear();
  for (const proxy of world.proxies.values()) proxy.judge = () => 'pass';
  await change(
    world,
    `update public.switch set value = case name when 'gate' then 'open' else 'answers' end`,
    `insert into public.listed select 'S' || n from generate_series(1, 6) as n on conflict (symbol) do update set active = true`,
    `delete from public.places where key = any ('{${noPlaces.join(',')}}')`,
    `update pgfresh.data_type_registry set gate_function = 'gate_of_rates' where data_type = 'rates' and gate_function is null`,
    `update pgfresh.data_type_registry set refresh_strategy = 'scheduled', refresh_schedule = '* * * * *' where data_type = 'place' and refresh_strategy <> 'scheduled'`,
  );
  world.wants.unlistedSince.clear();
  await change(
    world,
    `update pgfresh.data_type_registry set data_type = 'news' where data_type = 'news_renamed'`,
    `delete from pgfresh.data_type_registry where data_type = 'doomed'`,
    ...Object.keys(sources).map((name) => `select pgfresh_engine.clear_source_override('${name}')`),
    `update pgfresh.sources set quota_bytes = null where name = 'gamma' and quota_bytes is not null`,
    `update pgfresh.sources set enabled = true where not enabled`,
    `delete from pgfresh.spending_stop`,
  );
  for (const type of types) {
    const { rowCount } = await world.db.query(`select from pgfresh.data_type_registry where data_type = $1::text`, [
      type.name,
    ]);
    if (rowCount === 0) await change(world, registration(type));
    const needs = type.name === 'quote' ? '{profile}' : '{}';
    await change(
      world,
      `update pgfresh.data_type_registry set source = '${type.source}', table_name = '${type.name}', ttl = interval '${type.ttlSeconds} seconds', depends_on = '${needs}'
       where data_type = '${type.name}' and (source, table_name, ttl, depends_on) is distinct from ('${type.source}', '${type.name}', interval '${type.ttlSeconds} seconds', '${needs}'::text[])`,
    );
  }
  for (const name of Object.keys(sources)) await change(world, `select pgfresh.resume_source('${name}')`);
  await world.retryFailed();
}
