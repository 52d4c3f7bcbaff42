import { beforeAll, expect, it } from 'vitest';
import { ScheduleScene } from './scene.ts';

let scene: ScheduleScene;
beforeAll(async () => {
  scene = await ScheduleScene.open();
  await scene.scheduler();
});

import { afterAll } from 'vitest'; afterAll(()=>console.log(scene.problems.slice(0,3), scene.ended.slice(0,3)));
it('runs each slot once, in its time, and nothing of the past', async () => {
  await scene.job('each-minute', { params: { a: 1 } });
  await scene.idle();
  expect(await scene.story('each-minute')).toEqual([]);
  for (let minute = 0; minute < 3; minute++) {
    await scene.advance('1 minute');
    await scene.idle();
  }
  expect(await scene.story('each-minute')).toEqual(['12:01 succeeded', '12:02 succeeded', '12:03 succeeded']);
  expect(await scene.value(`array(select params ->> 'a' from public.done)`)).toEqual(['1', '1', '1']);
  expect(scene.problems).toEqual([]);
});
