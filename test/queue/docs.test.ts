import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { jobEvents, jobStates, transitions, type JobState } from '../../src/queue/index.ts';
import { playSession } from '../harness/sql-session.ts';

const page = await readFile('docs/internals/queue.md', 'utf8');

describe('docs/internals/queue.md', () => {
  it('shows a session that answers as it says', async () => {
    expect(await playSession(page)).toBeGreaterThan(10);
  });

  it('has the table of states', () => {
    const rows = [...page.matchAll(/^\| (\w+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$/gm)].map((match) =>
      match.slice(1),
    );
    const columns: Record<string, readonly JobState[]> = {
      pending: ['pending'],
      retryable: ['retryable'],
      running: ['running'],
      ended: jobStates.filter((state) => !['pending', 'retryable', 'running'].includes(state)),
    };
    const told = rows.map(([event, ...cells]) => [event, ...cells.map((cell) => (cell === '–' ? undefined : cell))]);
    const real = jobEvents.map((event) => [
      event,
      ...Object.values(columns).map((states) => {
        const targets = new Set(states.map((state) => transitions[state][event]));
        expect(targets.size).toBe(1);
        return [...targets][0];
      }),
    ]);
    expect(told).toEqual(real);
  });
});
