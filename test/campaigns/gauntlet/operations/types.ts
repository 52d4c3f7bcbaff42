import { registration, typeNamed, viewedTypes } from '../cast.ts';
import { cancelByHand, change, newKeys, queueByHand, seconds, type Operation } from './operation.ts';

/** Data types that change under their jobs. */
export const typeChanges: readonly Operation[] = [
  {
    name: 'change a TTL',
    weight: 2,
    lasts: 1,
    async run(world) {
      const { name } = world.pick(viewedTypes);
      const ttl = Math.round(world.between(6, 40));
      world.journal.note(this.name, `${name} has ${ttl} s`, { type: name });
      await change(
        world,
        `update pgfresh.data_type_registry set ttl = interval '${ttl} seconds' where data_type = '${name}'`,
      );
    },
  },
  {
    name: 'move a type to another source',
    weight: 3,
    alone: 'types',
    lasts: 25,
    async run(world) {
      const keys = newKeys('moved', 60);
      world.journal.note(
        this.name,
        `60 jobs of news are queued at gamma, and news moves to beta`,
        { type: 'news' },
        { source: 'beta' },
        { source: 'gamma' },
      );
      for (const key of keys) world.wants.queued('news', key);
      await change(
        world,
        `select count(*) from pgfresh_engine.queue_refreshes('news', '{${keys.join(',')}}')`,
        `update pgfresh.data_type_registry set source = 'beta' where data_type = 'news'`,
      );
      await seconds(world.between(3, 15));
      world.journal.note(
        this.name,
        'news moves back to gamma',
        { type: 'news' },
        { source: 'beta' },
        { source: 'gamma' },
      );
      world.noteLoss();
      await change(world, `update pgfresh.data_type_registry set source = 'gamma' where data_type = 'news'`);
      await cancelByHand(world, 'news');
    },
  },
  {
    name: 'move a type to another table',
    weight: 2,
    alone: 'types',
    lasts: 16,
    async run(world) {
      world.journal.note(this.name, 'news is written to news_moved', { type: 'news' });
      await change(world, `update pgfresh.data_type_registry set table_name = 'news_moved' where data_type = 'news'`);
      await seconds(world.between(4, 12));
      world.journal.note(this.name, 'news is written to news again', { type: 'news' });
      await change(world, `update pgfresh.data_type_registry set table_name = 'news' where data_type = 'news'`);
    },
  },
  {
    name: 'rename a type',
    weight: 1,
    alone: 'types',
    lasts: 15,
    async run(world) {
      world.journal.note(this.name, 'news is called news_renamed', { type: 'news' });
      await change(world, `update pgfresh.data_type_registry set data_type = 'news_renamed' where data_type = 'news'`);
      await seconds(world.between(3, 10));
      world.journal.note(this.name, 'news is called news again', { type: 'news' });
      await change(world, `update pgfresh.data_type_registry set data_type = 'news' where data_type = 'news_renamed'`);
    },
  },
  {
    name: 'close a gate',
    weight: 1,
    lasts: 16,
    async run(world) {
      world.journal.note(this.name, 'the gate of rates is closed', { type: 'rates' });
      await change(world, `update public.switch set value = 'closed' where name = 'gate'`);
      await seconds(world.between(4, 15));
      await change(world, `update public.switch set value = 'open' where name = 'gate'`);
    },
  },
  {
    name: 'a gate hangs',
    weight: 2,
    lasts: 26,
    async run(world) {
      world.journal.note(this.name, 'the gate of rates does not return', { type: 'rates' });
      world.hanging.add('rates');
      await change(world, `update public.switch set value = 'hangs' where name = 'gate'`);
      await seconds(world.between(12, 22));
      world.journal.note(this.name, 'the gate of rates returns again', { type: 'rates' });
      await change(world, `update public.switch set value = 'open' where name = 'gate'`);
      world.hanging.delete('rates');
    },
  },
  {
    name: 'a gate is removed and set',
    weight: 1,
    alone: 'types',
    lasts: 8,
    async run(world) {
      world.journal.note(this.name, 'rates has no gate, then its own again', { type: 'rates' });
      await change(world, `update pgfresh.data_type_registry set gate_function = null where data_type = 'rates'`);
      await seconds(world.between(1, 6));
      await change(
        world,
        `update pgfresh.data_type_registry set gate_function = 'gate_of_rates' where data_type = 'rates'`,
      );
    },
  },
  {
    name: 'a staleness function loops',
    weight: 1,
    lasts: 20,
    async run(world) {
      world.journal.note(this.name, 'that of street does not return', { type: 'street' });
      world.hanging.add('street');
      await change(world, `update public.switch set value = 'loops' where name = 'staleness'`);
      await seconds(world.between(8, 16));
      world.journal.note(this.name, 'that of street returns again', { type: 'street' });
      await change(world, `update public.switch set value = 'answers' where name = 'staleness'`);
      world.hanging.delete('street');
    },
  },
  {
    name: 'change a dependency',
    weight: 1,
    lasts: 8,
    async run(world) {
      world.journal.note(this.name, 'quote needs nothing, then profile again', { type: 'quote' });
      await change(world, `update pgfresh.data_type_registry set depends_on = '{}' where data_type = 'quote'`);
      await seconds(world.between(1, 6));
      await change(world, `update pgfresh.data_type_registry set depends_on = '{profile}' where data_type = 'quote'`);
    },
  },
  {
    name: 'delete a prerequisite and add it again',
    weight: 1,
    lasts: 12,
    async run(world) {
      world.journal.note(
        this.name,
        'profile is deleted and added, with all of its rows',
        { type: 'profile' },
        { type: 'quote' },
      );
      world.noteLoss();
      try {
        await change(world, `delete from pgfresh.data_type_registry where data_type = 'profile'`);
      } catch (error) {
        // It may be refused, because quote needs it.
        if (!(error as Error).message.startsWith('PGF_')) throw error;
        return;
      }
      await seconds(world.between(1, 4));
      await change(world, registration(typeNamed('profile')));
      await change(world, 'delete from public.profile');
    },
  },
  {
    name: 'delete a type and add it again',
    weight: 3,
    alone: 'types',
    lasts: 8,
    async run(world) {
      const { name, keys, source } = typeNamed(world.pick(['street', 'news', 'rates']));
      world.journal.note(this.name, `${name} is deleted while its jobs are queued`, { type: name }, { source });
      world.noteLoss();
      const deleted = change(world, `delete from pgfresh.data_type_registry where data_type = '${name}'`);
      const queued = Promise.allSettled(keys.map((key) => queueByHand(world, name, [key])));
      await deleted;
      await queued;
      await seconds(world.between(0.5, 5));
      await change(world, registration(typeNamed(name)));
      world.journal.note(this.name, `${name} is added again`, { type: name }, { source });
    },
  },
  {
    name: 'a table is missing when a process starts',
    weight: 1,
    alone: 'processes',
    lasts: 45,
    async run(world) {
      world.journal.note(this.name, 'doomed is registered, its table is dropped, the process second starts again', {
        type: 'doomed',
      });
      await change(
        world,
        'create table if not exists public.doomed (key text primary key, value bigint, note text, served_at timestamptz not null, fetched_at timestamptz)',
      );
      await change(world, registration({ name: 'doomed', source: 'gamma', ttlSeconds: 30 }));
      await change(world, 'drop table public.doomed');
      try {
        await world.replace('second', world.processes.get('second')!.variant, 'stop');
      } finally {
        await change(world, `delete from pgfresh.data_type_registry where data_type = 'doomed'`);
      }
      const second = world.processes.get('second')!;
      if (second.exitedAt !== undefined) await world.replace('second', second.variant, 'kill');
    },
  },
];
