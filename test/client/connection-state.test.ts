import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { transitions, type ConnectionEvent, type ConnectionState } from '../../client/connection-state.ts';

const states = Object.keys(transitions) as ConnectionState[];
const events = Object.keys(transitions.idle) as ConnectionEvent[];

/** All states that can be reached from a state. */
function reachable(from: ConnectionState): Set<ConnectionState> {
  const found = new Set([from]);
  for (const state of found) for (const next of Object.values(transitions[state])) found.add(next);
  return found;
}

describe.each(states)('the state %s', (state) => {
  it('has a next state for every event', () => {
    expect(Object.keys(transitions[state])).toEqual(events);
    for (const event of events) expect(states).toContain(transitions[state][event]);
  });

  it('can be reached', () => {
    expect(reachable('idle')).toContain(state);
  });

  it('is closed by close', () => {
    expect(transitions[state].close).toBe('closed');
  });

  it('becomes idle when no pair is viewed, or is closed', () => {
    expect(transitions[state].leave).toBe(state === 'closed' ? 'closed' : 'idle');
  });

  it('can lead to a connection again, or is closed', () => {
    expect(reachable(state).has('live')).toBe(state !== 'closed');
  });
});

it('is live only after a welcome', () => {
  const ways = states.flatMap((state) =>
    events
      .filter((event) => state !== 'live' && transitions[state][event] === 'live')
      .map((event) => `${state} ${event}`),
  );
  expect(ways).toEqual(['connecting open']);
});

it('matches the diagram in docs/guides/showing-data.md', async () => {
  const page = await readFile('docs/guides/showing-data.md', 'utf8');
  const drawing = /```mermaid\nstateDiagram-v2\n([\s\S]*?)```/.exec(page)![1]!;
  const drawn = [...drawing.matchAll(/^ +(\w+) --> (\w+): (.+)$/gm)].flatMap(([, from, to, by]) =>
    by!.split(', ').map((event) => `${from} ${event} ${to}`),
  );
  const written = states.flatMap((from) =>
    events
      .filter((event) => transitions[from][event] !== from && event !== 'close')
      .map((event) => `${from} ${event} ${transitions[from][event]}`),
  );
  expect(drawn.toSorted()).toEqual(written.toSorted());
  const told = [...page.matchAll(/^\| `(\w+)` \| /gm)].map(([, name]) => name);
  for (const state of states.filter((name) => name !== 'following')) expect(told).toContain(state);
});
