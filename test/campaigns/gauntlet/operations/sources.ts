import { registration, shaken, sources, typeNamed } from '../cast.ts';
import { cancelByHand, change, holding, newKeys, queueByHand, seconds, setRate, type Operation } from './operation.ts';

/** Limits, pauses, and sources that come and go. */
export const sourceChanges: readonly Operation[] = [
  {
    name: 'a rate goes down and up',
    weight: 2,
    alone: 'beta',
    lasts: 60,
    async run(world) {
      const keys = newKeys('flood', 110);
      world.journal.note(
        this.name,
        'beta has 40, 20, 40, 20, 40 calls per minute, with 110 jobs',
        { source: 'beta' },
        { type: 'rates' },
      );
      await queueByHand(world, 'rates', keys);
      for (const rate of [40, 20, 40, 20, 40]) {
        await change(world, setRate('beta', rate));
        await seconds(9);
      }
      await cancelByHand(world, 'rates');
    },
  },
  {
    name: 'a limit is removed and set',
    weight: 1,
    alone: 'beta',
    lasts: 12,
    async run(world) {
      const source = world.pick(['alpha', 'beta'] as const);
      world.journal.note(this.name, `${source} has no rate, then one`, { source });
      await change(world, setRate(source, null));
      await seconds(world.between(1, 8));
      await change(world, setRate(source, 40));
    },
  },
  {
    // An enqueue that commits after the quota has gone.
    name: 'a quota is set and removed',
    weight: 2,
    alone: 'types',
    lasts: 14,
    async run(world) {
      const [key = ''] = newKeys('quota', 1);
      world.journal.note(
        this.name,
        `gamma has a quota while news ${key} is queued, and none when that commits`,
        { source: 'gamma' },
        { type: 'news', key },
      );
      await change(world, `update pgfresh.sources set quota_bytes = 100000000 where name = 'gamma'`);
      world.wants.queued('news', key);
      await holding(world, 0, async (client) => {
        await client.query(`select pgfresh.queue_refresh_if_not_exists($1::text, 'news', 1, 5000)`, [key]);
        const removed = change(world, `update pgfresh.sources set quota_bytes = null where name = 'gamma'`);
        removed.catch(() => {});
        await Promise.race([removed, seconds(2)]);
        await client.query('commit; begin');
        await removed;
      });
      await world.sql.look('dan', 'news', key);
    },
  },
  {
    name: 'change jobs at once',
    weight: 1,
    lasts: 10,
    async run(world) {
      world.journal.note(this.name, 'beta takes one job at a time, then four', { source: 'beta' });
      await change(world, `update pgfresh.sources set max_concurrency = 1 where name = 'beta'`);
      await seconds(world.between(2, 8));
      await change(world, `update pgfresh.sources set max_concurrency = 4 where name = 'beta'`);
    },
  },
  {
    name: 'switch a source off',
    weight: 1,
    alone: 'pause',
    lasts: 16,
    async run(world) {
      const source = world.pick(shaken);
      world.journal.note(this.name, `${source} is off for a while`, { source });
      await change(world, `update pgfresh.sources set enabled = false where name = '${source}'`);
      world.pausedSince.set(source, Date.now());
      await seconds(world.between(3, 14));
      world.pausedSince.delete(source);
      await change(world, `update pgfresh.sources set enabled = true where name = '${source}'`);
    },
  },
  {
    name: 'pause a source',
    weight: 2,
    alone: 'pause',
    lasts: 16,
    async run(world) {
      const source = world.pick(shaken);
      world.journal.note(this.name, `${source} is paused for a while`, { source });
      await change(world, `select pgfresh.pause_source('${source}')`);
      world.pausedSince.set(source, Date.now());
      await seconds(world.between(3, 14));
      world.pausedSince.delete(source);
      await change(world, `select pgfresh.resume_source('${source}')`);
    },
  },
  {
    name: 'stop spending',
    weight: 1,
    alone: 'pause',
    lasts: 14,
    async run(world) {
      world.journal.note(this.name, 'nothing is spent for a while');
      const outage = world.beginOutage();
      await change(world, `insert into pgfresh.spending_stop (reason) values ('the gauntlet')`);
      for (const source of Object.keys(sources)) world.pausedSince.set(source, Date.now());
      await seconds(world.between(3, 12));
      world.pausedSince.clear();
      await change(world, 'delete from pgfresh.spending_stop');
      outage.to = Date.now() + 3_000;
    },
  },
  {
    name: 'delete a source and add it again',
    weight: 1,
    lasts: 45,
    async run(world) {
      world.journal.note(
        this.name,
        'extra is called to its limit, then deleted with its type, added, and called again',
        { source: 'extra' },
        { type: 'extra' },
      );
      await queueByHand(world, 'extra', newKeys('before', 20));
      await seconds(16);
      await cancelByHand(world, 'extra');
      await seconds(3);
      world.forgetLedger('extra');
      await change(
        world,
        `delete from pgfresh.data_type_registry where data_type = 'extra'`,
        `delete from pgfresh.sources where name = 'extra'`,
      );
      await seconds(1);
      await change(
        world,
        `insert into pgfresh.sources (name, rate_limit_per_minute) values ('extra', 12) on conflict do nothing`,
        registration(typeNamed('extra')),
      );
      await queueByHand(world, 'extra', newKeys('after', 20));
      await seconds(16);
      await cancelByHand(world, 'extra');
    },
  },
];
