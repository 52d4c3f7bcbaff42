import { expect, test } from 'vitest';
import { examineFetchers } from '../../src/refresh/index.ts';
import { quoteType, RefreshScene } from './scene.ts';

// The test runner fails if one of the promises is rejected unseen, which would end the process of a worker.
const rejected = async (): Promise<never> => {
  throw new Error('nobody waits for this');
};

test.for([
  ['rows', 'rows', rejected],
  ['one of its rows', 'rows', () => [rejected(), rejected()]],
  ['sanity', 'sanity', rejected],
] as const)('a promise as %s costs its data type only', async ([, option, misused]) => {
  const scene = await RefreshScene.open([quoteType({ [option]: misused as never })]);
  scene.quote('A', 1);
  const [ended] = await scene.refresh(['A']);
  expect(ended).toMatchObject({ outcome: 'config', error: `${option} returned a promise` });
  expect(await examineFetchers(scene.db, { ...scene.config, file: 'x.ts' })).toMatchObject([
    { name: 'worker', state: 'ok' },
  ]);
});
