import { readFile } from 'node:fs/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { completeJobs, turnBackJobs } from '../../src/refresh/ends.ts';
import {
  outcomes,
  type OutcomeName,
  type OutcomeRule,
  type RefusalName,
  type SuccessName,
} from '../../src/refresh/outcomes.ts';
import { RefreshScene } from './scene.ts';

const all = Object.entries(outcomes) as [OutcomeName, OutcomeRule][];
const cost = { bytes: 7, calls: 1, fetchMs: 1, validateMs: 1 };

describe('the table of outcomes', () => {
  let scene: RefreshScene;
  beforeAll(async () => {
    scene = await RefreshScene.open();
  });

  const becomes = { retry: 'retryable', fail: 'failed', put_back: 'pending', complete: 'succeeded' } as const;
  const workers = all.filter(([, { verdict }]) => Object.hasOwn(becomes, verdict));

  it.each(workers)('%s does to a job what it says', async (name, { verdict, breaker }) => {
    const key = name.toUpperCase();
    await scene.db.query(`update pgfresh.sources set failure_streak = 0`);
    await scene.enqueue('quote', [key]);
    const [job] = await scene.claim();
    if (verdict === 'complete') {
      await completeJobs(scene.queue, scene.db, [{ job: job!, cost, outcome: name as SuccessName }], 1);
    } else {
      const refusal = { outcome: name as RefusalName, message: 'because' };
      await turnBackJobs(scene.queue, scene.db, [{ job: job!, cost, refusal }]);
    }
    expect(await scene.value('select status from pgfresh.api_call_queue where id = $1', [job!.id])).toBe(
      becomes[verdict as keyof typeof becomes],
    );
    expect(await scene.value('select failure_streak from pgfresh.sources')).toBe(breaker ? 1 : 0);
    if (verdict === 'complete' || verdict === 'fail') {
      expect(await scene.value('select outcome from pgfresh_engine.pairs where key = $1', [key])).toBe(name);
    }
    await scene.db.query('delete from pgfresh_engine.job');
  });

  it('is the one of docs/reference/errors.md', async () => {
    const page = await readFile('docs/reference/errors.md', 'utf8');
    const rows = [...page.matchAll(/^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$/gm)].map(
      ([, ...cells]) => cells,
    );
    const expected = all.map(([name, { says, verdict, breaker, nextLook, keepsAnswer }]) => [
      name,
      says,
      verdict.replace('_', ' '),
      breaker ? 'yes' : 'no',
      nextLook,
      keepsAnswer ? 'yes' : 'no',
    ]);
    expect(rows).toEqual(expected);
  });
});
