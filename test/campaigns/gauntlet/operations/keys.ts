import { change, seconds, type Operation } from './operation.ts';

/** Keys that are not listed for a while. */
export const keyChanges: readonly Operation[] = [
  {
    name: 'a viewer leaves a key that is not listed',
    weight: 2,
    lasts: 110,
    async run(world) {
      const key = world.pick(['S5', 'S6']);
      const page = world.pick(world.pages);
      page.look('quote', key);
      await world.sql.look('eve', 'quote', key);
      await seconds(4);
      world.journal.note(this.name, `${key} is not listed; page ${page.name} leaves, eve stays`, {
        type: 'quote',
        key,
      });
      await change(world, `update public.listed set active = false where symbol = '${key}'`);
      world.wants.unlistedSince.set(key, Date.now());
      page.leave('quote', key);
      await seconds(100);
      world.wants.unlistedSince.delete(key);
      await change(world, `update public.listed set active = true where symbol = '${key}'`);
      await world.sql.leave('eve', 'quote', key);
      world.journal.note(this.name, `${key} is listed again`, { type: 'quote', key });
    },
  },
  {
    name: 'a key is deleted and added again',
    weight: 1,
    alone: 'keys',
    lasts: 8,
    async run(world) {
      const key = world.pick(['S3', 'S4']);
      world.journal.note(this.name, `${key} is deleted from the table of keys for a moment`, { type: 'quote', key });
      await change(world, `delete from public.listed where symbol = '${key}'`);
      await seconds(world.between(0.5, 6));
      await change(world, `insert into public.listed values ('${key}') on conflict do nothing`);
    },
  },
  {
    name: 'a viewer comes while a key is not listed',
    weight: 2,
    alone: 'keys',
    lasts: 8,
    async run(world) {
      const key = world.pick(['S3', 'S4']);
      const page = world.pick(world.pages);
      page.leave('quote', key);
      world.journal.note(this.name, `${key} is not listed for a moment, in which page ${page.name} looks at it`, {
        type: 'quote',
        key,
      });
      await change(world, `update public.listed set active = false where symbol = '${key}'`);
      page.look('quote', key);
      await seconds(world.between(0.2, 5));
      await change(world, `update public.listed set active = true where symbol = '${key}'`);
    },
  },
];
