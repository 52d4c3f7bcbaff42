import { viewedTypes } from '../cast.ts';
import { change, holding, lookAtAny, newKeys, seconds, type Operation } from './operation.ts';

/** What others do to rows, tables and pairs. */
export const rowChanges: readonly Operation[] = [
  {
    name: 'delete a row',
    weight: 3,
    lasts: 1,
    async run(world) {
      const { type, key } = lookAtAny(world);
      if (!world.mayHurt(type, key)) return;
      world.journal.note(this.name, `of ${type} ${key}`, { type, key });
      await change(world, `delete from public.${type} where key = '${key}'`);
    },
  },
  {
    name: 'age a row',
    weight: 3,
    lasts: 1,
    async run(world) {
      const { type, key } = lookAtAny(world);
      if (!world.mayHurt(type, key)) return;
      world.journal.note(this.name, `of ${type} ${key}`, { type, key });
      await change(world, `update public.${type} set fetched_at = fetched_at - interval '1 hour' where key = '${key}'`);
    },
  },
  {
    name: 'lock a row',
    weight: 2,
    lasts: 77,
    async run(world) {
      const { type, key } = lookAtAny(world);
      const long = world.pick([6, 15, 75]);
      world.journal.note(this.name, `of ${type} ${key} for ${long} s`, { type, key });
      await holding(world, long, (client) =>
        client.query(`select from public.${type} where key = $1::text for update`, [key]),
      );
    },
  },
  {
    name: 'lock a table',
    weight: 2,
    lasts: 22,
    async run(world) {
      const { name } = world.pick(viewedTypes);
      const long = world.pick([1, 6, 20]);
      world.journal.note(this.name, `${name} for ${long} s, as ALTER TABLE does`, { type: name });
      await holding(world, long, (client) => client.query(`lock table public.${name} in access exclusive mode`));
    },
  },
  {
    name: 'a stranger queues in an open transaction',
    weight: 3,
    lasts: 22,
    async run(world) {
      const { name, keys } = world.pick(viewedTypes);
      const long = world.pick([3, 10, 20]);
      const locked = name === 'quote' && world.random() < 0.5 ? 'profile' : name;
      const [fresh = ''] = locked === 'quote' || locked === 'profile' ? [] : newKeys('stranger', 1);
      world.journal.note(this.name, `all keys of ${locked} for ${long} s`, { type: locked }, { type: name });
      for (const key of [...keys, fresh]) world.wants.queued(locked, key);
      const held = holding(world, long, (client) =>
        client.query(`select count(*) from pgfresh_engine.queue_refreshes($1::text, $2::text[], 1)`, [
          locked,
          [...keys, fresh].filter(Boolean),
        ]),
      );
      held.catch(() => {});
      await seconds(1);
      // A viewer arrives meanwhile.
      if (fresh) await world.sql.look('fay', locked, fresh);
      for (const key of keys) world.pick(world.pages).look(name, key);
      await held;
      if (fresh) await world.sql.leave('fay', locked, fresh);
    },
  },
];
