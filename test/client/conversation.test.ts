import { beforeEach, expect, it, vi } from 'vitest';
import { Conversation } from '../../client/conversation.ts';
import { Pairs } from '../../client/pairs.ts';
import type { ClientMessage, PairName, StateMessage } from '../../client/protocol.ts';

let pairs: Pairs;
let sent: ClientMessage[];
let conversation: Conversation;
beforeEach(() => {
  pairs = new Pairs();
  sent = [];
  conversation = new Conversation(pairs, (message) => sent.push(message), 10_000);
});

const apple: PairName = ['quote', 'AAPL'];
const refusal = { code: 'PGF_KEY_UNKNOWN', message: 'There is no such key.', next: 'Take another.' };
const accepted = { type: 'answer', pairs: [{ pair: apple, result: 'accepted' }] } as const;

const stateOf = (version: string, rows?: StateMessage['rows']): StateMessage => ({
  type: 'change',
  pair: apple,
  version,
  status: 'ready',
  state: 'fresh',
  activity: 'idle',
  reason: null,
  words: '',
  until: null,
  error: null,
  fetched_at: null,
  stale_at: null,
  source_at: null,
  ...(rows && { rows }),
});

/** What was said since it was last asked. */
const said = () => sent.splice(0);

/** Looks at a pair and gets its first state. */
function begin() {
  const pair = pairs.hold(apple);
  conversation.begin();
  conversation.hear(accepted);
  conversation.hear(stateOf('5', [{ price: 1 }]));
  expect(said()).toEqual([{ type: 'want', pairs: [apple] }]);
  return pair;
}

it('a version never goes back, and rows that are left out are those from before', () => {
  const pair = begin();
  conversation.hear(stateOf('4', [{ price: 0 }]));
  expect(pair.fresh).toMatchObject({ version: '5', data: { price: 1 } });
  conversation.hear(stateOf('6'));
  expect(pair.fresh).toMatchObject({ version: '6', data: { price: 1 }, rows: [{ price: 1 }] });
});

it('what is refused keeps what it had, is left alone until it is time, and is then asked for whole', () => {
  const pair = begin();
  conversation.hear({ type: 'revoked', pair: apple, ...refusal });
  expect(pair.fresh).toMatchObject({ state: 'refused', error: refusal, data: { price: 1 }, version: '5' });
  conversation.update();
  expect(said()).toEqual([]);
  conversation.askAgain();
  // With its version there would be no answer, if nothing has changed, and it would look refused for ever.
  expect(said()).toEqual([{ type: 'add', pairs: [apple] }]);
  conversation.hear(accepted);
  conversation.hear(stateOf('5', [{ price: 1 }]));
  expect(pair.fresh).toMatchObject({ state: 'fresh', error: null, version: '5' });
  conversation.askAgain();
  expect(said()).toEqual([]);
});

it.each(['PGF_LIVE_FORBIDDEN', 'PGF_LIVE_PRIVATE'])('what is refused by %s is taken away', (code) => {
  const pair = begin();
  conversation.hear({ type: 'revoked', pair: apple, ...refusal, code });
  expect(pair.fresh).toMatchObject({ state: 'refused', data: undefined, rows: [], version: null, fetchedAt: null });
});

it('what was refused, left and is looked at again is asked for at once', () => {
  vi.useFakeTimers();
  const pair = begin();
  conversation.hear({ type: 'revoked', pair: apple, ...refusal });
  pairs.release(pair);
  vi.runAllTimers();
  vi.useRealTimers();
  expect(pairs.size).toBe(0);
  pairs.hold(apple);
  conversation.update();
  expect(said()).toEqual([{ type: 'add', pairs: [apple] }]);
});

it('what is left before it was answered is dropped after that, because it may be another that is wanted', () => {
  vi.useFakeTimers();
  const pair = pairs.hold(['quote', 'aapl']);
  conversation.begin();
  pairs.release(pair);
  vi.runAllTimers();
  vi.useRealTimers();
  conversation.update();
  expect(said()).toEqual([{ type: 'want', pairs: [['quote', 'aapl']] }]);
  conversation.hear({ type: 'answer', pairs: [{ pair: ['quote', 'aapl'], result: 'accepted', key: 'AAPL' }] });
  expect(said()).toEqual([{ type: 'drop', pairs: [apple] }]);
});

it('a refresh comes after its pair was asked for, and once for all who asked', async () => {
  conversation.begin();
  const pair = pairs.hold(apple);
  const refreshes = [1, 2].map(() => Promise.withResolvers<unknown>());
  pair.refreshes.push(...(refreshes as typeof pair.refreshes));
  conversation.refresh(pair);
  expect(said()).toEqual([
    { type: 'add', pairs: [apple] },
    { type: 'refresh', pair: apple },
  ]);
  conversation.hear({ type: 'refresh', pair: apple, result: 'merged' });
  expect(await Promise.all(refreshes.map(({ promise }) => promise))).toEqual(['merged', 'merged']);
});

it('counts are asked for once', () => {
  conversation.count();
  conversation.count();
  expect(said()).toEqual([{ type: 'hello', protocol: 1, viewers: true }]);
});
