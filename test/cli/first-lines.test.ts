import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { afterAll, expect, it } from 'vitest';
import { createDatabase } from '../harness/database.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { CliProcess } from '../harness/process.ts';

const cwd = await temporaryFolder('first-lines');
afterAll(() => rm(cwd, { recursive: true }));

// The process believes that a person reads along.
const terminal = join(cwd, 'terminal.mjs');
await writeFile(terminal, 'process.stderr.isTTY = true;\n');

/** What a start prints until it is ready: its log, and its last words. */
async function firstLines(
  args: string[],
  env: Record<string, string> = {},
): Promise<{ log: string[]; words: string[] }> {
  const child = new CliProcess(args, {
    cwd,
    env: { PGFRESH_PORT: '0', NODE_OPTIONS: `--import ${terminal}`, ...env },
  });
  await child.printed(/Ctrl-C/);
  child.signal('SIGINT');
  // Both streams are whole only now.
  expect(await child.exit).toBe(0);
  const [log, words] = [child.stderr, child.stdout].map((text) =>
    stripVTControlCharacters(text)
      .split('\n')
      .map((line) => line.replace(/^\d\d:\d\d:\d\d (\w+) +/, '$1 ').trim())
      .filter(Boolean),
  );
  return { log: log!.slice(0, log!.indexOf('info stopping: SIGINT')), words: words! };
}

const schema = /^info schema: \d+ migrations, \d+ function files, \d+\.\d s$/;

it('a first start says on a terminal what it creates, the schema, and where everything is', async () => {
  const { log, words } = await firstLines(['dev']);
  expect(log).toEqual([
    expect.stringMatching(/^info creating the embedded PostgreSQL in /),
    expect.stringMatching(schema),
    expect.stringMatching(/^info worker \S+ knows no data type yet$/),
  ]);
  expect(words).toEqual([
    expect.stringMatching(/^pgfresh \S+ is ready in \d+\.\d s$/),
    expect.stringMatching(/^Open +http:/),
    expect.stringMatching(/^Health +http:/),
    expect.stringMatching(/^Metrics +http:/),
    expect.stringMatching(/^Database +PGPASSWORD=\$\(cat \S+\) psql postgres:/),
    expect.stringMatching(/^Stop +Ctrl-C$/),
  ]);
});

it('a later start has nothing to say of the schema', async () => {
  const { log } = await firstLines(['dev']);
  expect(log).toEqual([
    expect.stringMatching(/^info starting the embedded PostgreSQL in /),
    expect.stringMatching(/^info worker \S+ knows no data type yet$/),
  ]);
});

it('some roles on a database of yours are named', async () => {
  const database = await createDatabase({ empty: true });
  const { log, words } = await firstLines(['run', '--migrate', '--roles', 'planner,console'], {
    DATABASE_URL: database,
  });
  expect(log).toEqual([expect.stringMatching(/^info external PostgreSQL /), expect.stringMatching(schema)]);
  expect(words).toContainEqual(expect.stringMatching(/^Database +yours, by DATABASE_URL$/));
  expect(words).toContainEqual(expect.stringMatching(/^Roles +planner, console$/));
});

it('--debug tells every step', async () => {
  const database = await createDatabase({ empty: true });
  const { log } = await firstLines(['run', '--migrate', '--roles', 'console', '--debug'], {
    DATABASE_URL: database,
  });
  expect(log).toContainEqual(expect.stringMatching(/^debug applied functions\/api\/rules in \d+ ms$/));
  expect(log).toContainEqual(expect.stringMatching(/^debug listening at http:/));
});
