import { beforeEach, expect, it } from 'vitest';
import { examineSources } from '../../src/sources/index.ts';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene } from '../queue/scene.ts';

const scene = await QueueScene.open();
const clock = await freezeClock(scene.db);
const id = await scene.source('paid', { apiKeys: 2 });
await scene.type('page', 'paid');
beforeEach(() => scene.db.query(`select pgfresh.resume_source('paid')`));

const ask = (call: string) => scene.db.query(`select ${call}`);
const trouble = (kind: string, key: number | null = null) =>
  ask(
    `pgfresh_engine.note_trouble(${id}, ${key}::smallint, ${key === null ? `(select type_id from pgfresh.data_type_registry where data_type = 'page')` : 'null'},
      '${kind}', array['1'], 1, pgfresh.clock(), 'HTTP 401', pgfresh.clock())`,
  );
const pauseAs = (who: string) =>
  scene.db.query(
    `update pgfresh.sources set paused_by = '${who}', pause_reason = 'status 503', breaker_opened_at = case when '${who}' = 'breaker' then pgfresh.clock() end,
       paused_until = pgfresh.clock() + interval '1 minute' where name = 'paid'`,
  );
const resume = '"pgfresh source resume paid"';
const until = String.raw`until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`;

it.each<[string, () => Promise<unknown>, [name: string, detail: RegExp, next: string]]>([
  [
    'a pause by hand',
    () => ask(`pgfresh.pause_source('paid', pgfresh.clock() + interval '1 hour', 'maintenance')`),
    ['source paid', new RegExp(`^paused ${until}: maintenance$`), `Run ${resume} when it may be called again.`],
  ],
  [
    'a breaker',
    () => pauseAs('breaker'),
    [
      'source paid',
      new RegExp(`^breaker ${until}: status 503$`),
      `Nothing has to be done: one job tries later whether it is back. ${resume} tries now.`,
    ],
  ],
  [
    'a breaker whose pause is over',
    async () => {
      await pauseAs('breaker');
      await clock.advance('2 minutes');
    },
    ['source paid', /^probing: one job at a time tries whether it is back$/, 'Nothing has to be done.'],
  ],
  [
    'a provider that asks to be left alone',
    () => ask(`pgfresh_engine.hold_source(${id}, pgfresh.clock() + interval '1 minute', 'status 429')`),
    ['source paid', new RegExp(`^held by the provider ${until}: `), `Nothing has to be done. ${resume} ends it.`],
  ],
  [
    'one of two API keys that is refused',
    () => trouble('denied', 2),
    ['source paid', /^the provider refuses API key 2$/, `Renew the API key, then run ${resume}.`],
  ],
  [
    'a data type whose answers are refused',
    () => trouble('refused'),
    [
      'data type page',
      new RegExp(`^paused ${until}: 1 answers in a row were refused: HTTP 401$`),
      `Compare an answer with the definition ("pgfresh refused list page"). One job tries later; ${resume} tries now.`,
    ],
  ],
  [
    'a data type whose answers are older than what is there',
    () => trouble('older_source'),
    [
      'data type page',
      new RegExp(`^paused ${until}: `),
      `Ask the provider why its data does not move on. One job tries later; ${resume} tries now.`,
    ],
  ],
])('truth 19: check of %s says what to do about it, and nothing else', async (_name, make, [name, detail, next]) => {
  await make();
  expect((await examineSources(scene.db)).slice(1)).toEqual([
    { name, state: 'warning', detail: expect.stringMatching(detail) as string, next },
  ]);
});

it('truth 19: check of a setting that an operator has changed says how to follow the configuration', async () => {
  await scene.db.transact('sync', async (tx) => {
    await tx.query(`set local pgfresh.sync = 'rate_limit_per_minute'`);
    await tx.query(`update pgfresh.sources set managed_by = 'config', rate_limit_per_minute = 300 where name = 'paid'`);
  });
  await ask(`pgfresh_engine.override_source('paid', 'rate_limit_per_minute', '120', 'incident 7')`);
  expect((await examineSources(scene.db)).slice(1)).toMatchObject([
    {
      name: 'source paid',
      detail: expect.stringContaining('rate_limit_per_minute 120 instead of 300') as string,
      next: 'Run "pgfresh source clear paid" to follow the configuration.',
    },
  ]);
});
