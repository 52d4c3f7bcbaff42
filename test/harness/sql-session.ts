import pg from 'pg';
import { expect } from 'vitest';
import { createDatabase } from './database.ts';

/** Runs the first SQL session of a docs page in a new database and checks the answers. Returns the statement count. */
export function playSession(page: string): Promise<number> {
  return playSessions([/```sql\n(.*?)```/s.exec(page)![1]!]);
}

/** The same for several sessions, one after the other in one database. */
export async function playSessions(texts: readonly string[]): Promise<number> {
  const session = texts.flatMap(readSession);
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
  return session.length;
}

interface Step {
  readonly statement: string;
  /** The rows shown directly below the statement. */
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
