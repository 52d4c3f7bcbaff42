import { type Bar, bar, type Figure, showNumber } from '../report.ts';
import type { Pass } from './passes.ts';
import type { Plan } from './plan.ts';
import type { Scene } from './scene.ts';

export type Column = Pass['name'] | 'idle tick';

export const heartbeatName = (clients: number) => `one heartbeat a minute of ${showNumber(clients)} clients`;
export const coldName = 'first subscription to claimable job, p50';

export function sizeName(subscriptions: number): string {
  return `${showNumber(subscriptions)} subscriptions`;
}

export function barsOf(
  figures: readonly Figure[],
  scenes: readonly Scene[],
  plan: Plan,
  temporaryFiles: number,
): Bar[] {
  const valueOf = (measure: string, contender: string) =>
    figures.find((figure) => figure.measure === measure && figure.contender === contender)?.value ?? Number.NaN;
  const ms = (subscriptions: number, column: Column) => valueOf(sizeName(subscriptions), column);
  const pairs = (subscriptions: number) => scenes.find((scene) => scene.subscriptions === subscriptions)!.pairs;

  const first = plan.sizes[0]!.subscriptions;
  const { from, to } = plan.growth;
  const growth = ms(to, 'sweep') / ms(from, 'sweep') / (pairs(to) / pairs(from));
  const idle = plan.sizes.map(({ subscriptions }) => ms(subscriptions, 'idle tick'));
  return [
    bar(
      `sweep at ${sizeName(first)}, times faster than the loop`,
      ms(first, 'loop') / ms(first, 'sweep'),
      'at least',
      40,
    ),
    bar(
      `tick at ${sizeName(first)}, times faster than the loop`,
      ms(first, 'loop') / ms(first, 'tick'),
      'at least',
      80,
    ),
    ...plan.sizes.map(({ subscriptions }) => {
      const times = ms(subscriptions, 'tick') / ms(subscriptions, 'bare insert');
      return bar(`tick at ${sizeName(subscriptions)}, times a bare insert`, times, 'at most', 4);
    }),
    bar(
      `growth of the sweep from ${showNumber(from)} to ${sizeName(to)}, times that of the pairs`,
      growth,
      'at most',
      1,
    ),
    bar('tick with nothing due, at any size, ms', Math.max(...idle), 'at most', 5),
    bar('temporary files', temporaryFiles, 'at most', 0),
    bar(
      `${heartbeatName(plan.heartbeat.clients)}, % of a core`,
      valueOf(heartbeatName(plan.heartbeat.clients), 'pgfresh'),
      'at most',
      5,
    ),
    bar(`${coldName}, ms`, valueOf(coldName, 'pgfresh'), 'at most', 20),
  ];
}
