import { readFile } from 'node:fs/promises';
import pg from 'pg';
import { describe, expect, it } from 'vitest';
import { jobEvents, jobStates, transitions, type JobState } from '../../src/queue/index.ts';
import { createDatabase } from '../harness/database.ts';

const page = await readFile('docs/queue.md', 'utf8');

describe('docs/queue.md', () => {
  it('shows a session that answers as it says', async () => {
    const session = readSession(/```sql\n(.*?)```/s.exec(page)![1]!);
    expect(session.length).toBeGreaterThan(10);
    const client = new pg.Client({ connectionString: await createDatabase(), types: { getTypeParser: () => String } });
    await client.connect();
    try {
      for (const { statement, answer } of session) {
        const { rows } = await client.query<unknown[]>({ text: statement, rowMode: 'array' });
        if (answer.length > 0) expect({ statement, answer: rows.map(line) }).toEqual({ statement, answer });
      }
    } finally {
      await client.end();
    }
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

interface Step {
  readonly statement: string;
  /** The rows that the page shows directly below the statement. */
  readonly answer: string[];
}

function readSession(text: string): Step[] {
  const steps: Step[] = [];
  let statement = '';
  let answers = false;
  for (const row of text.split('\n')) {
    if (row.startsWith('-- ')) {
      if (answers) steps.at(-1)!.answer.push(row.slice(3));
      continue;
    }
    statement += `${row}\n`;
    answers = row.endsWith(';');
    if (!answers) continue;
    steps.push({ statement: statement.trim(), answer: [] });
    statement = '';
  }
  expect(statement.trim(), 'after the last statement').toBe('');
  return steps;
}

function line(row: readonly unknown[]): string {
  return row.map((value) => (value === 't' ? 'true' : value === 'f' ? 'false' : String(value))).join(' | ');
}
