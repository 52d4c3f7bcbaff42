import { types } from '../cast.ts';
import type { World } from '../world.ts';
import { change, lookAtAny, newKeys, seconds, type Operation } from './operation.ts';

/** What operators and applications do. */
export const byHand: readonly Operation[] = [
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
  {
    // Two dead letters of one data type, of which one is no key any more.
    name: 'retry beside a key that is gone',
    weight: 1,
    alone: 'keys',
    lasts: 60,
    async run(world) {
      const [stays, goes] = ['S3', 'S4'] as const;
      world.journal.note(
        this.name,
        `quote ${stays} and ${goes} fail, ${goes} is not listed any more, and what failed is retried`,
        { type: 'quote', key: stays },
        { type: 'quote', key: goes },
      );
      const undo = world.provider.behave('alpha', 'renamed');
      for (const key of [stays, goes]) world.wants.queued('quote', key);
      await world.db.query(
        `select from pgfresh_engine.queue_refreshes('quote', array[$1::text, $2::text], 9, p_force => true)`,
        [stays, goes],
      );
      const haveFailed = await within(15, async () => (await deadLetters(world)).length >= 2);
      undo();
      if (!haveFailed) return;
      await change(world, `update public.listed set active = false where symbol = '${goes}'`);
      world.wants.unlistedSince.set(goes, Date.now());
      // A pair that others have locked is left for the next time.
      const isRetried = await within(25, async () => {
        await world.retryFailed();
        return !(await deadLetters(world)).includes(stays);
      });
      await change(world, `update public.listed set active = true where symbol = '${goes}'`);
      world.wants.unlistedSince.delete(goes);
      if (!isRetried)
        world.journal.violated(
          'one key that is gone costs only itself',
          { type: 'quote', key: stays },
          `the dead letter of quote ${stays} cannot be retried beside that of ${goes}`,
        );
    },
  },
];

/** Keys of quote whose failure has not been retried. */
async function deadLetters(world: World): Promise<string[]> {
  const { rows } = await world.db.query<{ key: string }>(
    `select distinct key from pgfresh.failed_jobs where data_type = 'quote' and key in ('S3', 'S4') and redriven_at is null`,
  );
  return rows.map(({ key }) => key);
}

async function within(count: number, holds: () => Promise<boolean>): Promise<boolean> {
  const end = Date.now() + count * 1_000;
  while (!(await holds())) {
    if (Date.now() > end) return false;
    await seconds(1);
  }
  return true;
}
