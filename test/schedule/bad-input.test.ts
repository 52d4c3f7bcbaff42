import { expect, it } from 'vitest';
import { leaseFunctions } from '../harness/called-functions.ts';
import { expectNoChange, expectRefusal } from '../harness/refusal.ts';
import { openSession } from '../harness/session.ts';
import { LeaseScene } from './lease-scene.ts';

const scene = await LeaseScene.open();
const session = await openSession(scene.url);
const held = await scene.take('held');

/** A code of ours, a SQLSTATE of PostgreSQL's where the argument's type cannot hold the value, or the reason that is answered. */
type Calls = readonly (readonly [args: string, expected: string])[];

const argument = 'PGF_ARGUMENT_INVALID';
const long = `repeat('x', 10240)`;
const names: Calls = [
  ['null', argument],
  [`''`, argument],
  [long, argument],
  [`repeat('é', 101)`, argument],
  [`E'a\\nb'`, argument],
  [`E'\\x7f'`, argument],
  [`U&'a\\0085b'`, argument],
];
const leases: Calls = [
  ['null', argument],
  [`'0'`, argument],
  [`'999 milliseconds'`, argument],
  [`'-1 hour'`, argument],
  [`'24 hours 1 second'`, argument],
  [`'1 month'`, argument],
  [`'100000 years'`, argument],
  [`'soon'`, '22007'],
];
const tokens: Calls = [
  ['null', argument],
  [`'one'`, '22P02'],
  ['9223372036854775808', '42883'],
  ['0', 'lost'],
  ['-1', 'lost'],
  ['9223372036854775807', 'lost'],
];
const within = (values: Calls, place: (value: string) => string): Calls =>
  values.map(([value, expected]) => [place(value), expected] as const);

const cases: Record<(typeof leaseFunctions)[number], Calls> = {
  acquire_refresh_lock: [
    ...within(names, (name) => `${name}, 'me'`),
    ...within(names, (holder) => `'work', ${holder}`),
    ...within(leases, (lease) => `'work', 'me', ${lease}`),
    [`'work', 'me', '1 minute', null`, argument],
    [`'work', 'me', '1 minute', 'maybe'`, '22P02'],
    [`'held', 'me'`, 'locked'],
    [`'work'`, '42883'],
  ],
  renew_refresh_lock: [
    ...within(names, (name) => `${name}, ${held}`),
    ...within(tokens, (token) => `'held', ${token}`),
    ...within(leases, (lease) => `'held', ${held}, ${lease}`),
    [`'never taken', ${held}`, 'lost'],
  ],
  release_refresh_lock: [
    ...within(names, (name) => `${name}, ${held}, true`),
    ...within(tokens, (token) => `'held', ${token}, true`),
    [`'held', ${held}, 'perhaps'`, '22P02'],
    [`'held', ${held}, true, '-1 second'`, argument],
    [`'held', ${held}, true, '367 days'`, argument],
    [`'held', ${held}, true, '100000 years'`, argument],
    [`'held', ${held}, true, 'soon'`, '22007'],
    [`'never taken', ${held}, true`, 'lost'],
  ],
  fence_refresh_lock: [
    ...within(names, (name) => `${name}, ${held}`),
    ...within(tokens, (token) => `'held', ${token}`).map(
      ([args, expected]) => [args, expected === 'lost' ? 'PGF_LOCK_LOST' : expected] as const,
    ),
    [`'never taken', ${held}`, 'PGF_LOCK_LOST'],
  ],
};

it.each(Object.entries(cases))('%s', async (name, calls) => {
  await expectNoChange(scene.db, async () => {
    for (const [args, expected] of calls) {
      const call = session.query<{ reason: string }>(`select * from pgfresh.${name}(${args})`);
      if (expected.startsWith('PGF_')) await expectRefusal(call, expected);
      else if (/^[a-z]/.test(expected)) expect(await call).toMatchObject([{ reason: expected }]);
      else await expect(call).rejects.toMatchObject({ code: expected });
    }
  });
});

it('knows every function of leases; first-seen.test.ts has the other one', () => {
  expect(Object.keys(cases).toSorted()).toEqual([...leaseFunctions].toSorted());
});

it('a name with a zero character never reaches a function', async () => {
  const acquire = `select pgfresh.acquire_refresh_lock($1::text, 'me')`;
  await expect(session.query(acquire, ['a\u0000b'])).rejects.toMatchObject({ code: '22021' });
});

it.each([
  [`success_wait_min = '-1 second'`],
  [`success_wait_min = '16 minutes'`],
  [`success_wait_max = '9 minutes'`],
  [`success_wait_max = '367 days'`],
  [`failure_wait_min = '41 minutes'`],
  [`failure_wait_max = '-1 day'`],
  [`failure_wait_max = null`],
  [`last_status = 'fine'`],
  [`function_name = ''`],
  [`function_name = repeat('x', 201)`],
  [`enabled = null`],
  [`lock_token = null`],
])('a row cannot be given %s', async (change) => {
  const update = scene.db.query(`update pgfresh.refresh_schedule set ${change} where function_name = 'held'`);
  await expect(update).rejects.toMatchObject({ code: expect.stringMatching(/^23/) as string });
});
