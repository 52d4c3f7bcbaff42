import { beforeAll, expect, it } from 'vitest';
import type { jobFunctions } from '../harness/called-functions.ts';
import { expectNoChange, expectRefusal } from '../harness/refusal.ts';
import { openSession } from '../harness/session.ts';
import type { Queryable } from '../../src/database/index.ts';
import { done, JobScene } from './job-scene.ts';
import { inSchema } from '../harness/schemas.ts';

type Expected = { readonly refuses: `PGF_${string}` } | { readonly sqlState: string } | { readonly answers: unknown };

const argument: Expected = { refuses: 'PGF_ARGUMENT_INVALID' };
const unknown: Expected = { refuses: 'PGF_JOB_UNKNOWN' };
const noSuchFunction: Expected = { sqlState: '42883' };
const answers = (answer: unknown): Expected => ({ answers: answer });

/** 10 kB. */
const long = `repeat('x', 10240)`;
const injected = `'''; drop schema pgfresh cascade; --'`;

/** Arguments that make no sense, and what each call does. Nothing else happens in any of them. */
const cases: Record<(typeof jobFunctions)[number], readonly (readonly [string, Expected])[]> = {
  call_job_function: [
    [`null, '{}'`, unknown],
    [`0, '{}'`, unknown],
    [`-1, '{}'`, unknown],
    [`2147483648, '{}'`, noSuchFunction],
    [`:job, null`, argument],
    [`:job, '[]'`, argument],
    [`:job, 'null'`, argument],
    [`:job, '1'`, argument],
    [`:job, '{'`, { sqlState: '22P02' }],
    [`:job, '{"a": 1}'`, { refuses: 'PGF_JOB_INVALID' }],
    [`:handler, '{}'`, unknown],
  ],
  cron_problem: [
    ['null', answers('expected at most 500 characters, got null')],
    [`''`, answers('expected five fields, got 0')],
    [long, answers('expected at most 500 characters, got 10240')],
    [
      injected,
      answers(
        "expected five fields, got 6; seconds and years are not kept: did you mean 'drop schema pgfresh cascade; --'?",
      ),
    ],
    [`'@daily'`, answers(null)],
  ],
  is_time_zone: [
    ['null', answers(false)],
    [`''`, answers(false)],
    [long, answers(false)],
    [injected, answers(false)],
    [`E'UTC\\n'`, answers(false)],
    [`'UTC'`, answers(true)],
  ],
};

let scene: JobScene;
let session: Queryable;
let job: number;
let handler: number;
beforeAll(async () => {
  scene = await JobScene.open();
  session = await openSession(scene.url);
  job = await scene.add('job', done());
  handler = await scene.register({ name: 'handler', kind: 'handler', schedule: '@daily' }, { session });
});

it.each(Object.entries(cases))('%s', async (name, calls) => {
  await expectNoChange(scene.db, async () => {
    for (const [args, expected] of calls)
      await expectOutcome(name, args.replace(':job', String(job)).replace(':handler', String(handler)), expected).catch(
        (cause: unknown) => {
          throw new Error(`${name}(${args})`, { cause });
        },
      );
  });
});

async function expectOutcome(name: string, args: string, expected: Expected): Promise<void> {
  const call = session.query<{ answer: unknown }>(`select ${inSchema(name)}(${args}) as answer`);
  if ('answers' in expected) expect(await call).toEqual([{ answer: expected.answers }]);
  else if ('sqlState' in expected) await expect(call).rejects.toMatchObject({ code: expected.sqlState });
  else await expectRefusal(call, expected.refuses);
}
