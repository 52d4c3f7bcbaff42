import { shaken, wide } from '../cast.ts';
import { manners } from '../provider.ts';
import { newKeys, queueByHand, seconds, type Operation } from './operation.ts';

/** How the provider misbehaves. */
export const providerChanges: readonly Operation[] = [
  {
    name: 'the provider misbehaves',
    weight: 8,
    lasts: 26,
    async run(world) {
      const source = world.pick(shaken);
      const manner = world.pick(manners);
      const share = world.pick([0.3, 0.7, 1]);
      world.journal.note(this.name, `${source}: ${manner}, ${share * 100} % of the answers`, { source });
      const undo = world.provider.behave(source, manner, share);
      await seconds(world.between(5, 25));
      undo();
    },
  },
  {
    name: 'answers cannot be stored',
    weight: 2,
    lasts: 22,
    async run(world) {
      const source = world.pick(shaken);
      const manner = world.pick(['nul_in_value', 'nul_in_name', 'nul_in_error', 'nul_not_json', 'half_emoji'] as const);
      world.journal.note(this.name, `${source}: ${manner}`, { source });
      const undo = world.provider.behave(source, manner);
      await seconds(world.between(8, 20));
      undo();
    },
  },
  {
    name: 'answers have other columns',
    weight: 2,
    lasts: 5,
    async run(world) {
      world.journal.note(this.name, '60 jobs of wide are queued, whose answers have any columns', { type: wide.name });
      await queueByHand(world, wide.name, newKeys('wide', 60));
    },
  },
  {
    // Each job needs two of the ten calls per minute.
    name: 'many are redirected',
    weight: 1,
    lasts: 60,
    async run(world) {
      const open = await world.db.query(`select from pgfresh_engine.open_jobs where data_type = 'detour'`);
      if (open.rowCount! > 2) return;
      world.journal.note(this.name, '12 jobs of detour are queued', { source: 'detour' }, { type: 'detour' });
      await queueByHand(world, 'detour', newKeys('detour', 12));
    },
  },
  {
    name: 'the provider says too many for long',
    weight: 1,
    lasts: 96,
    async run(world) {
      const manner = world.pick(['too_many', 'too_many_hint'] as const);
      const hint = manner === 'too_many' ? 'without Retry-After' : 'with Retry-After: 3';
      world.journal.note(this.name, `gamma: 429 ${hint} for 95 s`, { source: 'gamma' });
      const undo = world.provider.behave('gamma', manner);
      await seconds(95);
      undo();
    },
  },
];
