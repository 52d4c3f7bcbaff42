import { types } from '../cast.ts';
import { lookAtAny, newKeys, type Operation } from './operation.ts';

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
];
