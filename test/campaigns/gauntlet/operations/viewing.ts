import { typeNamed } from '../cast.ts';
import { change, lookAtAny, newKeys, seconds, setRate, users, type Operation } from './operation.ts';

/** What viewers do. */
export const viewing: readonly Operation[] = [
  {
    name: 'look by SQL',
    weight: 8,
    lasts: 1,
    async run(world) {
      const { type, key } = lookAtAny(world);
      const user = world.pick(users);
      world.journal.note(this.name, `${user} looks at ${type} ${key}`, { type, key });
      await world.sql.look(user, type, key);
    },
  },
  {
    name: 'leave by SQL',
    weight: 6,
    lasts: 1,
    async run(world) {
      const look = world.pick(world.sql.looks.filter(({ user }) => users.includes(user)));
      if (!look) return;
      world.journal.note(this.name, `${look.user} leaves ${look.type} ${look.key}`, look);
      await world.sql.leave(look.user, look.type, look.key);
    },
  },
  {
    name: 'fall silent',
    weight: 1,
    lasts: 1,
    async run(world) {
      const look = world.pick(world.sql.looks.filter(({ user }) => users.includes(user)));
      if (!look) return;
      world.journal.note(this.name, `${look.user} is silent about ${look.type} ${look.key}`, look);
      world.sql.fallSilent(look.user, look.type, look.key);
    },
  },
  {
    // The five minutes of silence are longer than most campaigns.
    name: 'have been silent for long',
    weight: 1,
    lasts: 1,
    async run(world) {
      const look = world.pick(world.sql.looks.filter(({ user, silent }) => users.includes(user) && !silent));
      if (!look) return;
      world.journal.note(this.name, `${look.user} has not been heard about ${look.type} ${look.key} for 290 s`, look);
      world.sql.fallSilent(look.user, look.type, look.key, 290_000);
      await change(
        world,
        `update pgfresh_engine.subscription as s set last_seen_at = s.last_seen_at - interval '290 seconds'
         from pgfresh.data_type_registry as r
         where r.type_id = s.type_id and r.data_type = '${look.type}' and s.user_id = '${look.user}' and lower(s.key) = lower('${look.key}')`,
      );
    },
  },
  {
    name: 'look on a page',
    weight: 8,
    lasts: 1,
    async run(world) {
      const { type, key } = lookAtAny(world);
      const page = world.pick(world.pages);
      world.journal.note(this.name, `page ${page.name} looks at ${type} ${key}`, { type, key });
      page.look(type, key);
    },
  },
  {
    name: 'leave a page',
    weight: 6,
    lasts: 1,
    async run(world) {
      const page = world.pick(world.pages);
      const look = world.pick(page.looks);
      if (!look) return;
      world.journal.note(this.name, `page ${page.name} leaves ${look.type} ${look.key}`, look);
      page.leave(look.type, look.key);
    },
  },
  {
    name: 'refresh now',
    weight: 2,
    lasts: 1,
    async run(world) {
      const page = world.pick(world.pages);
      const look = world.pick(page.looks);
      if (!look) return;
      world.journal.note(this.name, `page ${page.name} refreshes ${look.type} ${look.key}`, look);
      void page.refreshNow(look.type, look.key);
    },
  },
  {
    // Whenever calls are free, eleven at a time, more pairs than that wait that have more viewers.
    name: 'one viewer beside a crowd',
    weight: 2,
    alone: 'seats',
    lasts: 95,
    async run(world) {
      const { name, keys } = typeNamed('seat');
      const [crowded, alone] = [keys.slice(0, -2), keys.slice(-2)];
      world.journal.note(
        this.name,
        `three viewers look at each of ${crowded[0]} to ${crowded.at(-1)}, and hal at ${alone.join(' and ')}`,
        {
          type: name,
        },
      );
      for (const key of alone) await world.sql.look('hal', name, key);
      for (const key of crowded) for (const user of ['ann', 'ben', 'cat']) await world.sql.look(user, name, key);
      await seconds(85);
      for (const look of world.sql.looks.filter(({ type }) => type === name))
        await world.sql.leave(look.user, look.type, look.key);
    },
  },
  {
    // More jobs than the source has calls, and no viewers left when their turn comes.
    name: 'a crowd comes and goes',
    weight: 2,
    alone: 'beta',
    lasts: 125,
    async run(world) {
      const keys = newKeys('crowd', 25);
      world.journal.note(
        this.name,
        `beta has 6 calls per minute, a crowd looks at ${keys[0]} to ${keys.at(-1)}`,
        { source: 'beta' },
        { type: 'rates' },
      );
      await change(world, setRate('beta', 6));
      for (const key of keys) await world.sql.look('crowd', 'rates', key);
      await seconds(3);
      for (const key of keys) await world.sql.leave('crowd', 'rates', key);
      world.journal.note(this.name, 'the crowd has left', { source: 'beta' }, { type: 'rates' });
      await seconds(115);
      await change(world, setRate('beta', 40));
    },
  },
];
