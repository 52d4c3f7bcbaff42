import { setTimeout as wait } from 'node:timers/promises';
import type pg from 'pg';
import { registration, shaken, sources, typeNamed, types, viewedTypes, type SourceName } from './cast.ts';
import { manners } from './provider.ts';
import { processNames, type World } from './world.ts';

/** One random thing that happens to the system. It undoes itself; what it may leave behind is listed in `heal`. */
export interface Operation {
  readonly name: string;
  /** How often it is drawn, relative to the others. */
  readonly weight: number;
  /** Seconds until it is over, at most; it is not drawn when less is left. */
  readonly lasts: number;
  /** Of operations with the same word here, one is under way at a time. */
  readonly alone?: string;
  readonly run: (world: World) => Promise<void>;
}

const users = ['ada', 'bob', 'cem'];
let made = 0;
/** Keys that nothing else has. */
const newKeys = (word: string, count: number): string[] => Array.from({ length: count }, () => `${word}${++made}`);
const seconds = (count: number): Promise<void> => wait(count * 1_000);

/** Runs statements on a connection of their own, which waits for no lock for long. Deadlocks and waits are tried again. */
async function change(world: World, ...statements: string[]): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const client = await world.db.connect();
    try {
      await client.query(`set lock_timeout = '8s'`);
      await client.query('begin');
      for (const statement of statements) await client.query(statement);
      await client.query('commit');
      return;
    } catch (error) {
      await client.query('rollback').catch(() => {});
      if (attempt === 5 || !/deadlock|lock timeout/.test((error as Error).message)) throw error;
    } finally {
      await client.query('reset lock_timeout').catch(() => {});
      client.release();
    }
  }
}

/** A transaction that stays open for a while, as an application's may. */
async function holding(
  world: World,
  forSeconds: number,
  work: (client: pg.PoolClient) => Promise<unknown>,
): Promise<void> {
  const client = await world.db.connect();
  try {
    await client.query(`begin; set local lock_timeout = '5s'`);
    await work(client);
    await seconds(forSeconds);
    await client.query(world.random() < 0.7 ? 'commit' : 'rollback');
  } catch (error) {
    await client.query('rollback').catch(() => {});
    if (!/lock timeout|deadlock/.test((error as Error).message)) throw error;
  } finally {
    client.release();
  }
}

async function queueByHand(world: World, type: string, keys: readonly string[]): Promise<void> {
  for (const key of keys) world.wants.queued(type, key);
  await world.db.query(`select count(*) from pgfresh.queue_refreshes($1::text, $2::text[])`, [type, keys]);
}

async function cancelByHand(world: World, type: string): Promise<void> {
  world.noteLoss();
  await world.db.query(`select pgfresh.cancel_queue_jobs(p_data_type => $1::text, p_status => 'pending')`, [type]);
}

const setRate = (source: SourceName, rate: number | null): string =>
  `update pgfresh.sources set rate_limit_per_minute = ${rate} where name = '${source}'`;

const lookAtAny = (world: World): { type: string; key: string; source: string } => {
  const { name, keys, source } = world.pick(viewedTypes);
  return { type: name, key: world.pick(keys), source };
};

const viewing: readonly Operation[] = [
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
    // More jobs than the source has calls, and nobody looks any more when their turn comes.
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

const typeChanges: readonly Operation[] = [
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
        `select count(*) from pgfresh.queue_refreshes('news', '{${keys.join(',')}}')`,
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
      await change(world, `update public.switch set value = 'hangs' where name = 'gate'`);
      await seconds(world.between(12, 22));
      world.journal.note(this.name, 'the gate of rates returns again', { type: 'rates' });
      await change(world, `update public.switch set value = 'open' where name = 'gate'`);
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

const sourceChanges: readonly Operation[] = [
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
      await change(world, `select pgfresh.stop_spending('the gauntlet')`);
      for (const source of Object.keys(sources)) world.pausedSince.set(source, Date.now());
      await seconds(world.between(3, 12));
      world.pausedSince.clear();
      await change(world, 'select pgfresh.resume_spending()');
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

const keyChanges: readonly Operation[] = [
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
    name: 'a viewer comes while a key is not listed',
    weight: 2,
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

const rowChanges: readonly Operation[] = [
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
    lasts: 62,
    async run(world) {
      const { type, key } = lookAtAny(world);
      const long = world.pick([6, 15, 60]);
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
        client.query(`select count(*) from pgfresh.queue_refreshes($1::text, $2::text[], 1)`, [
          locked,
          [...keys, fresh].filter(Boolean),
        ]),
      );
      held.catch(() => {});
      await seconds(1);
      // Somebody comes meanwhile.
      if (fresh) await world.sql.look('fay', locked, fresh);
      for (const key of keys) world.pick(world.pages).look(name, key);
      await held;
      if (fresh) await world.sql.leave('fay', locked, fresh);
    },
  },
];

const byHand: readonly Operation[] = [
  {
    name: 'queue for later, then look',
    weight: 2,
    lasts: 2,
    async run(world) {
      const [key = ''] = newKeys('later', 1);
      world.journal.note(this.name, `news ${key} is queued for tomorrow, and dan looks at it`, { type: 'news', key });
      await world.db.query(
        `select pgfresh.queue_refresh_if_not_exists($1::text, 'news', p_run_at => pgfresh.clock() + interval '1 day')`,
        [key],
      );
      await world.sql.look('dan', 'news', key);
    },
  },
  {
    name: 'force a refresh',
    weight: 2,
    lasts: 1,
    async run(world) {
      const { type, key } = lookAtAny(world);
      world.journal.note(this.name, `of ${type} ${key}`, { type, key });
      world.wants.queued(type, key);
      await world.db.query(`select pgfresh.queue_refresh_if_not_exists($1::text, $2::text, 5, p_force => true)`, [
        key,
        type,
      ]);
    },
  },
  {
    name: 'cancel jobs',
    weight: 2,
    lasts: 1,
    async run(world) {
      const { name } = world.pick(types);
      world.journal.note(this.name, `of ${name}`, { type: name });
      world.noteLoss();
      await world.db.query(`select pgfresh.cancel_queue_jobs(p_data_type => $1::text)`, [name]);
    },
  },
  {
    name: 'retry what failed',
    weight: 1,
    lasts: 1,
    async run(world) {
      world.journal.note(this.name, 'all of it');
      await world.retryFailed();
    },
  },
];

const providerChanges: readonly Operation[] = [
  {
    name: 'the provider misbehaves',
    weight: 8,
    lasts: 26,
    async run(world) {
      const source = world.pick(shaken);
      const manner = world.pick(manners);
      const share = world.pick([0.3, 0.7, 1]);
      world.journal.note(this.name, `${source}: ${manner}, ${share * 100} % of the answers`, { source });
      world.provider.behave(source, manner, share);
      await seconds(world.between(5, 25));
      world.provider.behave(source, 'good');
    },
  },
  {
    // Each job needs two of the ten calls per minute.
    name: 'many are redirected',
    weight: 1,
    lasts: 60,
    async run(world) {
      world.journal.note(this.name, '12 jobs of detour are queued', { source: 'detour' }, { type: 'detour' });
      await queueByHand(world, 'detour', newKeys('detour', 12));
    },
  },
  {
    name: 'the provider says too many for long',
    weight: 1,
    lasts: 96,
    async run(world) {
      world.journal.note(this.name, 'gamma: 429 without Retry-After for 95 s', { source: 'gamma' });
      world.provider.behave('gamma', 'too_many');
      await seconds(95);
      world.provider.behave('gamma', 'good');
    },
  },
];

const processChanges: readonly Operation[] = [
  {
    name: 'restart with the other configuration',
    weight: 2,
    alone: 'processes',
    lasts: 45,
    async run(world) {
      const name = world.pick(['main', 'second'] as const);
      const variant = world.processes.get(name)!.variant === 'blue' ? 'green' : 'blue';
      world.journal.note(this.name, `${name} becomes ${variant}, with 60 jobs of alpha queued`, { source: 'alpha' });
      await queueByHand(world, 'profile', newKeys('rolling', 60));
      await seconds(2);
      await world.replace(name, variant, 'stop');
      await seconds(8);
      await cancelByHand(world, 'profile');
    },
  },
  {
    name: 'stop a process at its work',
    weight: 2,
    alone: 'processes',
    lasts: 40,
    async run(world) {
      const { variant } = world.processes.get('main')!;
      world.journal.note(
        this.name,
        'main is asked to stop, with a job of the scheduler, 120 jobs of gamma and a slow provider',
        {
          source: 'gamma',
        },
      );
      world.provider.behave('gamma', 'slow');
      await world.db.query(`select pgfresh.trigger_scheduled_job('doze')`);
      await queueByHand(world, 'news', newKeys('stop', 120));
      await seconds(1.5);
      await world.replace('main', variant, 'stop');
      world.provider.behave('gamma', 'good');
      await cancelByHand(world, 'news');
    },
  },
  {
    name: 'kill a process',
    weight: 1,
    alone: 'processes',
    lasts: 40,
    async run(world) {
      const name = world.pick(processNames);
      world.journal.note(this.name, name);
      world.noteLoss();
      await world.replace(name, world.processes.get(name)!.variant, 'kill');
    },
  },
  {
    name: 'cut connections',
    weight: 1,
    lasts: 2,
    async run(world) {
      const name = world.pick(processNames);
      world.journal.note(this.name, `of ${name} to the database`);
      world.cutOff(name, 0);
      world.proxies.get(name)!.cut();
    },
  },
  {
    name: 'connections die silently',
    weight: 1,
    alone: 'processes',
    lasts: 26,
    async run(world) {
      const name = world.pick(processNames);
      const long = world.between(4, 24);
      const proxy = world.proxies.get(name)!;
      world.journal.note(this.name, `of ${name} to the database, for ${Math.round(long)} s`);
      world.cutOff(name, long * 1_000);
      proxy.judge = () => 'hold';
      await seconds(long);
      proxy.judge = () => 'pass';
      proxy.cut();
    },
  },
];

export const operations: readonly Operation[] = [
  ...viewing,
  ...typeChanges,
  ...sourceChanges,
  ...keyChanges,
  ...rowChanges,
  ...byHand,
  ...providerChanges,
  ...processChanges,
];

/** Draws an operation by weight, of those that end in time. */
export function draw(
  world: World,
  secondsLeft: number,
  isFree: (operation: Operation) => boolean,
): Operation | undefined {
  const fitting = operations.filter((operation) => operation.lasts <= secondsLeft && isFree(operation));
  let left = world.random() * fitting.reduce((sum, { weight }) => sum + weight, 0);
  return fitting.find(({ weight }) => (left -= weight) < 0);
}

/** Puts everything back as the cast has it, as an operator would, and retries what has failed. */
export async function heal(world: World): Promise<void> {
  world.provider.behaveWell();
  world.pausedSince.clear();
  for (const proxy of world.proxies.values()) proxy.judge = () => 'pass';
  await change(world, `update public.switch set value = 'open'`, `update public.listed set active = true`);
  world.wants.unlistedSince.clear();
  await change(
    world,
    `update pgfresh.data_type_registry set data_type = 'news' where data_type = 'news_renamed'`,
    `delete from pgfresh.data_type_registry where data_type = 'doomed'`,
    ...Object.keys(sources).map((name) => `select pgfresh.clear_source_override('${name}')`),
    `update pgfresh.sources set quota_bytes = null where name = 'gamma' and quota_bytes is not null`,
    `update pgfresh.sources set enabled = true where not enabled`,
    `select pgfresh.resume_spending()`,
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
