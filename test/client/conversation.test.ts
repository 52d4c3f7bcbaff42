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

/** The messages sent since the last call. */
const takeSent = () => sent.splice(0);

/** Views a pair and receives its first state. */
function begin() {
  const pair = pairs.hold(apple);
  conversation.begin();
  conversation.receive(accepted);
  conversation.receive(stateOf('5', [{ price: 1 }]));
  expect(takeSent()).toEqual([{ type: 'want', pairs: [apple] }]);
  return pair;
}

it('a version never goes back, and rows that a message leaves out are unchanged', () => {
  const pair = begin();
  conversation.receive(stateOf('4', [{ price: 0 }]));
  expect(pair.fresh).toMatchObject({ version: '5', data: { price: 1 } });
  conversation.receive(stateOf('6'));
  expect(pair.fresh).toMatchObject({ version: '6', data: { price: 1 }, rows: [{ price: 1 }] });
});

it("truth 1: a row goes stale at its time without a message, by the server's clock", () => {
  vi.useFakeTimers({ now: 1_000_000 });
  pairs.clock.aheadMs = 5_000;
  const pair = begin();
  const told = vi.fn<() => void>();
  pair.listeners.add(told);
  const staleIn = (ms: number): StateMessage => ({
    ...stateOf('6'),
    stale_at: new Date(Date.now() + 5_000 + ms).toISOString(),
  });
  conversation.receive(staleIn(30_000));
  vi.advanceTimersByTime(29_999);
  expect(pair.fresh).toMatchObject({ state: 'fresh', status: 'ready' });
  vi.advanceTimersByTime(1);
  expect(pair.fresh).toMatchObject({ state: 'stale', status: 'ready', data: { price: 1 }, version: '6' });
  expect(told).toHaveBeenCalledTimes(2);
  // A later time restarts the timer, even beyond the maximum of setTimeout.
  conversation.receive({ ...staleIn(3e9), version: '7' });
  vi.advanceTimersByTime(2.9e9);
  expect(pair.fresh.state).toBe('fresh');
  vi.advanceTimersByTime(1e8);
  expect(pair.fresh.state).toBe('stale');
  // A state past its time is stale at once.
  conversation.receive({ ...staleIn(-1), version: '8' });
  expect(pair.fresh).toMatchObject({ state: 'stale', version: '8' });
  conversation.receive({ ...staleIn(1_000), version: '9' });
  pairs.clear();
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

it('truth 15: loading, empty and failing are distinct, and data stays if its refresh fails', () => {
  const pair = begin();
  const failed = { code: 'PGF_LIVE_REFRESH_FAILED', message: 'The last refresh failed.', next: '' };
  conversation.receive({ ...stateOf('6'), state: 'stale', error: failed });
  expect(pair.fresh).toMatchObject({ status: 'ready', state: 'stale', data: { price: 1 }, error: failed });
  conversation.receive({ ...stateOf('7', []), status: 'empty', state: 'empty' });
  expect(pair.fresh).toMatchObject({ status: 'empty', state: 'empty', data: undefined, rows: [], error: null });
  conversation.receive({ ...stateOf('8'), status: 'error', state: 'missing', error: failed });
  expect(pair.fresh).toMatchObject({ status: 'error', error: failed });
  conversation.receive({ type: 'revoked', pair: apple, ...refusal });
  expect(pair.fresh).toMatchObject({ status: 'error', state: 'refused', error: refusal });
});

it('a refused pair keeps its data, is not requested again at once, and later without a version', () => {
  const pair = begin();
  conversation.receive({ type: 'revoked', pair: apple, ...refusal });
  expect(pair.fresh).toMatchObject({
    status: 'ready',
    state: 'refused',
    error: refusal,
    data: { price: 1 },
    version: '5',
  });
  conversation.update();
  expect(takeSent()).toEqual([]);
  conversation.askAgain();
  // With its version an unchanged pair would get no state, and would look refused for ever.
  expect(takeSent()).toEqual([{ type: 'add', pairs: [apple] }]);
  conversation.receive(accepted);
  conversation.receive(stateOf('5', [{ price: 1 }]));
  expect(pair.fresh).toMatchObject({ state: 'fresh', error: null, version: '5' });
  conversation.askAgain();
  expect(takeSent()).toEqual([]);
});

it.each(['PGF_LIVE_FORBIDDEN', 'PGF_LIVE_PRIVATE', 'PGF_LIVE_ROLE'])('data refused with %s is removed', (code) => {
  const pair = begin();
  conversation.receive({ type: 'revoked', pair: apple, ...refusal, code });
  expect(pair.fresh).toMatchObject({ state: 'refused', data: undefined, rows: [], version: null, fetchedAt: null });
});

it('a pair that was refused and left is requested at once when it is viewed again', () => {
  vi.useFakeTimers();
  const pair = begin();
  conversation.receive({ type: 'revoked', pair: apple, ...refusal });
  pairs.release(pair);
  vi.runAllTimers();
  vi.useRealTimers();
  expect(pairs.size).toBe(0);
  pairs.hold(apple);
  conversation.update();
  expect(takeSent()).toEqual([{ type: 'add', pairs: [apple] }]);
});

it('a pair that is left before its answer is dropped after it, because the key may be spelled differently', () => {
  vi.useFakeTimers();
  const pair = pairs.hold(['quote', 'aapl']);
  conversation.begin();
  pairs.release(pair);
  vi.runAllTimers();
  vi.useRealTimers();
  conversation.update();
  expect(takeSent()).toEqual([{ type: 'want', pairs: [['quote', 'aapl']] }]);
  conversation.receive({ type: 'answer', pairs: [{ pair: ['quote', 'aapl'], result: 'accepted', key: 'AAPL' }] });
  expect(takeSent()).toEqual([{ type: 'drop', pairs: [apple] }]);
});

/** Leaves a pair for longer than it lingers. */
function leave(pair: ReturnType<Pairs['hold']>) {
  vi.useFakeTimers();
  pairs.release(pair);
  vi.runAllTimers();
  vi.useRealTimers();
  expect(pairs.size).toBe(0);
}

it.each([true, false])(
  'a pair that is looked at anew is asked for whole, also if it was not said that it was left (%s)',
  (isSaid) => {
    leave(begin());
    if (isSaid) conversation.update();
    const again = pairs.hold(apple);
    // A message to the earlier pair, without the rows that it had.
    conversation.receive(stateOf('6'));
    expect(again.fresh).toMatchObject({ state: 'loading', version: null });
    conversation.update();
    expect(takeSent()).toEqual([
      { type: 'drop', pairs: [apple] },
      { type: 'add', pairs: [apple] },
    ]);
    conversation.receive(accepted);
    conversation.receive({ ...stateOf('6', [{ price: 1 }]), type: 'snapshot' });
    expect(again.fresh).toMatchObject({ version: '6', rows: [{ price: 1 }] });
    conversation.update();
    expect(takeSent()).toEqual([]);
  },
);

it('a pair that is left and viewed again before its answer uses that answer', () => {
  const pair = pairs.hold(apple);
  conversation.begin();
  leave(pair);
  const again = pairs.hold(apple);
  conversation.update();
  conversation.receive(accepted);
  conversation.receive({ ...stateOf('5', [{ price: 1 }]), type: 'snapshot' });
  expect(again.fresh).toMatchObject({ version: '5', rows: [{ price: 1 }] });
  expect(takeSent().filter(({ type }) => type === 'drop')).toEqual([]);
});

it('a refresh is sent after its pair was requested, and once for all callers', async () => {
  conversation.begin();
  const pair = pairs.hold(apple);
  const refreshes = [1, 2].map(() => Promise.withResolvers<unknown>());
  pair.refreshes.push(...(refreshes as typeof pair.refreshes));
  conversation.refresh(pair);
  expect(takeSent()).toEqual([
    { type: 'add', pairs: [apple] },
    { type: 'refresh', pair: apple },
  ]);
  conversation.receive({ type: 'refresh', pair: apple, result: 'merged' });
  expect(await Promise.all(refreshes.map(({ promise }) => promise))).toEqual(['merged', 'merged']);
});

it('viewer counts are requested once', () => {
  conversation.count();
  conversation.count();
  expect(takeSent()).toEqual([{ type: 'hello', protocol: 1, viewers: true }]);
});
