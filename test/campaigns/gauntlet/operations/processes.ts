import { allowances } from '../allowances.ts';
import { processNames } from '../world.ts';
import { cancelByHand, newKeys, queueByHand, seconds, type Operation } from './operation.ts';

/** Processes that end, start, and lose their database. */
export const processChanges: readonly Operation[] = [
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
    name: 'deploy beside many ends',
    weight: 2,
    alone: 'processes',
    lasts: 45,
    async run(world) {
      const { variant: runs } = world.processes.get('main')!;
      const other = runs === 'blue' ? 'green' : 'blue';
      world.journal.note(
        this.name,
        `the registry becomes ${other} and ${runs} again, while 150 jobs of gamma end, and some of alpha and beta`,
        { source: 'gamma' },
        { source: 'alpha' },
        { source: 'beta' },
      );
      await queueByHand(world, 'news', newKeys('deploy', 150));
      await queueByHand(world, 'rates', newKeys('deploy', 10));
      await queueByHand(world, 'profile', newKeys('deploy', 10));
      for (const variant of [other, runs] as const) {
        const { exitCode, ms, output } = await world.deploy(variant);
        if (exitCode !== '0' || ms > allowances.deployment + world.lag)
          world.journal.violated(
            'a deployment succeeds',
            {},
            `pgfresh migrate ended with ${exitCode} after ${Math.round(ms)} ms: ${output}`,
          );
      }
      for (const type of ['news', 'rates', 'profile']) await cancelByHand(world, type);
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
      const undo = world.provider.behave('gamma', 'slow');
      await world.db.query(`select pgfresh.trigger_scheduled_job('doze')`);
      await queueByHand(world, 'news', newKeys('stop', 120));
      await seconds(1.5);
      await world.replace('main', variant, 'stop');
      undo();
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
