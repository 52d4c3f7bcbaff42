import { allowances } from '../allowances.ts';
import { noPlaces, place } from '../cast.ts';
import type { World } from '../world.ts';
import { change, holding, seconds, type Operation } from './operation.ts';

let givenUp = 0;

/** Rounds over the keys of a data type with a schedule. */
export const scheduleChanges: readonly Operation[] = [
  {
    name: 'a schedule meets keys that are none',
    weight: 2,
    alone: 'rounds',
    lasts: 20,
    async run(world) {
      world.journal.note(this.name, `a round of place, whose table of keys also has ${noPlaces.join(' and ')}`, {
        type: place.name,
      });
      await change(
        world,
        `insert into public.places (key) values ${noPlaces.map((key) => `('${key}')`).join(', ')} on conflict do nothing`,
      );
      await expectRound(world);
      await change(world, `delete from public.places where key = any ('{${noPlaces.join(',')}}')`);
    },
  },
  {
    name: 'a pair is locked during a round',
    weight: 2,
    alone: 'rounds',
    lasts: 30,
    async run(world) {
      const key = world.pick(place.keys);
      const long = world.pick([2, 5, 9]);
      world.journal.note(this.name, `place ${key} is locked for ${long} s, and a round is opened`, {
        type: place.name,
        key,
      });
      const held = holding(world, long, async (client) => {
        await client.query(`select from pgfresh_engine.queue_refreshes('place', array[$1::text])`, [key]);
        // It may have a job already, and then nothing is locked by that.
        await client.query(
          `select from pgfresh_engine.pairs as p join pgfresh.data_type_registry as r using (type_id)
           where r.data_type = 'place' and p.key = $1::text and p.job_id is null for update of p`,
          [key],
        );
      });
      held.catch(() => {});
      await seconds(0.5);
      await expectRound(world, long * 1_000);
      await held;
    },
  },
  {
    name: 'a schedule is given up and taken up',
    weight: 1,
    alone: 'rounds',
    lasts: 25,
    async run(world) {
      // Each in its turn: a row that is set back twice within its TTL is left alone for a while.
      const key = place.keys[givenUp++ % place.keys.length]!;
      world.journal.note(this.name, `place is refreshed on demand, and gil looks at ${key}, whose row is old`, {
        type: place.name,
        key,
      });
      await world.sql.look('gil', place.name, key);
      const [area, spot] = key.split('|');
      await change(
        world,
        `update public.place set fetched_at = fetched_at - interval '1 hour' where area = '${area}' and spot = '${spot}'`,
        `update pgfresh.data_type_registry set refresh_strategy = 'on-demand', refresh_schedule = null where data_type = 'place'`,
      );
      await expectServed(world, [key], Date.now(), allowances.turn);
      await change(
        world,
        `update pgfresh.data_type_registry set refresh_strategy = 'scheduled', refresh_schedule = '* * * * *' where data_type = 'place'`,
      );
      await world.sql.leave('gil', place.name, key);
    },
  },
];

/** Opens a round and sees that every key has its turn. */
async function expectRound(world: World, heldForMs = 0): Promise<void> {
  const began = Date.now();
  await world.db.query(`select pgfresh_engine.open_refresh_cycle('place', pgfresh.clock())`);
  await expectServed(world, place.keys, began, heldForMs + allowances.turn);
}

async function expectServed(world: World, keys: readonly string[], began: number, patience: number): Promise<void> {
  const missing = async (): Promise<string[]> => {
    const { rows } = await world.db.query<{ key: string }>(
      `select p.key from pgfresh_engine.pairs as p join pgfresh.data_type_registry as r using (type_id)
       where r.data_type = 'place' and p.ok_at >= $1::timestamptz`,
      [new Date(began)],
    );
    return keys.filter((key) => rows.every((row) => row.key !== key));
  };
  let left = await missing();
  while (left.length > 0 && Date.now() - began < patience + world.lag) {
    await seconds(0.5);
    left = await missing();
  }
  if (left.length === 0 || !world.wasWhole(began)) return;
  for (const key of left)
    world.journal.violated(
      'every key of a schedule has its turn',
      { type: place.name, key },
      `place ${key} was not refreshed within ${Math.round((Date.now() - began) / 1000)} s`,
    );
}
