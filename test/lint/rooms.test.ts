import { spawnSync } from 'node:child_process';
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { importsOf } from '../../scripts/import-statements.ts';
import { ground, rooms } from '../../scripts/rooms-table.ts';
import { findViolations } from '../../scripts/rooms.ts';

const script = join(import.meta.dirname, '../../scripts/rooms.ts');

let root: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'pgfresh-rooms-'));
});

afterEach(() => {
  rmSync(root, { recursive: true });
});

function plant(files: Record<string, string>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(join(root, dirname(path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
}

interface Sample {
  rule: string;
  file: string;
  passes: string;
  fails: string;
  says: string;
}

const samples: Sample[] = [
  {
    rule: 'a room imports only what its row allows',
    file: 'src/demand/leases.ts',
    passes: "import { Database } from '../database/index.ts';\nimport { Events } from '../events/index.ts';",
    fails: "import pg from 'pg';\nimport { tick } from '../planner/index.ts';",
    says: 'src/demand/leases.ts:2 imports ../planner/index.ts; demand may import errors, events, lifecycle, database',
  },
  {
    rule: 'a room at the bottom imports no other',
    file: 'src/errors/table.ts',
    passes: "import { text } from './text.ts';",
    fails: "import type { Events } from '../events/index.ts';",
    says: 'src/errors/table.ts:1 imports ../events/index.ts; errors may import no other room',
  },
  {
    rule: 'a room is entered through its index.ts only',
    file: 'src/refresh/commit.ts',
    passes: "import { claim } from '../queue/index.ts';",
    fails: "import { claim } from '../queue/claim.ts';",
    says: 'src/refresh/commit.ts:1 imports ../queue/claim.ts; queue is entered through src/queue/index.ts only',
  },
  {
    rule: 'every room may import types of config',
    file: 'src/demand/leases.ts',
    passes:
      "import type { DataType } from '../config/index.ts';\nimport type {\n  Source,\n} from '../config/index.ts';",
    fails: "import type { Type } from './type.ts';\nimport { type DataType } from '../config/index.ts';",
    says: 'src/demand/leases.ts:2 imports ../config/index.ts; demand may import errors, events, lifecycle, database',
  },
  {
    rule: 'types of config come through its index.ts too',
    file: 'src/demand/leases.ts',
    passes: "import type { DataType } from '../config/index.ts';",
    fails: "import type { DataType } from '../config/data-type.ts';",
    says: 'src/demand/leases.ts:1 imports ../config/data-type.ts; config is entered through src/config/index.ts only',
  },
  {
    rule: 'a room does not re-export what another owns',
    file: 'src/refresh/index.ts',
    passes: "export { commit } from './commit.ts';\nimport { claim } from '../queue/index.ts';",
    fails: "export type {\n  Claim,\n} from '../queue/index.ts';",
    says: 'src/refresh/index.ts:3 imports ../queue/index.ts; a room does not re-export what queue owns',
  },
  {
    rule: 'the gateway imports the types of the protocol',
    file: 'src/gateway/session/session.ts',
    passes: "import type { PairName } from '#protocol';",
    fails: "import { protocol } from '#protocol';",
    says: 'src/gateway/session/session.ts:1 imports #protocol; only gateway imports the protocol, as types',
  },
  {
    rule: 'no other room imports the protocol',
    file: 'src/planner/tick.ts',
    passes: "import { Events } from '../events/index.ts';",
    fails: "import type { PairName } from '#protocol';",
    says: 'src/planner/tick.ts:1 imports #protocol; only gateway imports the protocol, as types',
  },
  {
    rule: 'a room does not use the public API',
    file: 'src/watch/metrics.ts',
    passes: "import { Events } from '../events/index.ts';",
    fails: "import { Events } from 'pgfresh';",
    says: 'src/watch/metrics.ts:1 imports pgfresh; watch may import errors, events, lifecycle, database, config',
  },
  {
    rule: 'a room imports nothing outside src',
    file: 'src/watch/metrics.ts',
    passes: "import { readFileSync } from 'node:fs';",
    fails: "import { rooms } from '../../scripts/rooms-table.ts';",
    says: 'src/watch/metrics.ts:1 imports ../../scripts/rooms-table.ts; watch may import errors, events, lifecycle, database, config',
  },
  {
    rule: 'the public API re-exports from rooms',
    file: 'src/index.ts',
    passes:
      "/** The API. */\nexport { PgfreshError } from './errors/index.ts';\nexport type * from './events/index.ts';",
    fails: "export { errorTable } from './errors/table.ts';",
    says: 'src/index.ts:1 imports ./errors/table.ts; the public API re-exports from the index.ts of rooms only',
  },
  {
    rule: 'the public API has no code of its own',
    file: 'src/index.ts',
    passes: "export { PgfreshError as Failure } from './errors/index.ts';",
    fails: "export { PgfreshError } from './errors/index.ts';\nexport const version = '1';",
    says: 'src/index.ts:2 has code of its own; it only re-exports from rooms',
  },
  {
    rule: 'examples import the public API only',
    file: 'examples/coins/fetch.ts',
    passes: "import { defineSource } from 'pgfresh';\nimport { z } from 'zod';\nimport { coins } from './coins.ts';",
    fails: "import { defineSource } from '../../src/config/index.ts';",
    says: 'examples/coins/fetch.ts:1 imports ../../src/config/index.ts; examples may import their own folder and the public API, src/index.ts',
  },
  {
    rule: 'an example stands by itself',
    file: 'examples/coins/fetch.ts',
    passes: "import { defineSource } from '../../src/index.ts';",
    fails: "import { quotes } from '../market/quotes.ts';",
    says: 'examples/coins/fetch.ts:1 imports ../market/quotes.ts; examples may import their own folder and the public API, src/index.ts',
  },
  {
    rule: 'the client imports nothing of src',
    file: 'client/socket.ts',
    passes: "import { count } from './references.ts';",
    fails: "import type { PgfreshEvent } from '../src/index.ts';",
    says: 'client/socket.ts:1 imports ../src/index.ts; client may import nothing of src',
  },
  {
    rule: 'the dashboard imports nothing of src',
    file: 'dashboard/pages/home.tsx',
    passes: "import { useState } from 'react';\nimport { subscribe } from '../../client/index.ts';",
    fails: "const api = await import('pgfresh');",
    says: 'dashboard/pages/home.tsx:1 imports pgfresh; dashboard may import nothing of src',
  },
];

describe.each(samples)('$rule', ({ file, passes, fails, says }) => {
  test('a passing sample', () => {
    plant({ [file]: passes });
    expect(findViolations(root)).toEqual([]);
  });

  test('a failing sample', () => {
    plant({ [file]: fails });
    expect(findViolations(root)).toEqual([says]);
  });
});

describe('a folder in a room that has an index.ts is entered through it only', () => {
  const inner = { 'src/database/embedded/index.ts': "export * from './lock.ts';", 'src/database/embedded/lock.ts': '' };

  test('a passing sample', () => {
    plant({
      ...inner,
      'src/database/index.ts': "export { take } from './embedded/index.ts';",
      'src/database/embedded/server.ts': "import { take } from './lock.ts';\nimport { url } from '../url.ts';",
      'src/changes/bus.ts': "import { postgres } from './buses/postgres.ts';",
    });
    expect(findViolations(root)).toEqual([]);
  });

  test('a failing sample', () => {
    plant({ ...inner, 'src/database/pool.ts': "import { take } from './embedded/lock.ts';" });
    expect(findViolations(root)).toEqual([
      'src/database/pool.ts:1 imports ./embedded/lock.ts; src/database/embedded is entered through its index.ts only',
    ]);
  });
});

describe('every folder of src is in the table', () => {
  test('a passing sample', () => {
    plant({ 'src/queue/index.ts': '', 'src/queue/tables/open.ts': '' });
    expect(findViolations(root)).toEqual([]);
  });

  test('a failing sample', () => {
    plant({ 'src/misc/index.ts': "import '../cli/main.ts';" });
    expect(findViolations(root)).toEqual([
      expect.stringMatching(/^src\/misc: is not in the table of rooms; it knows errors, /),
    ]);
  });
});

describe('every file of src lies in a room', () => {
  test('a passing sample', () => {
    plant({ 'src/index.ts': '', 'src/queue/depth.ts': 'export const depth = 1;' });
    expect(findViolations(root)).toEqual([]);
  });

  test('a failing sample', () => {
    plant({ 'src/queue.ts': 'export const depth = 1;' });
    expect(findViolations(root)).toEqual(['src/queue.ts:1 is in no room; only src/index.ts lies beside them']);
  });
});

describe('the command', () => {
  const run = () => spawnSync(process.execPath, [script, root], { encoding: 'utf8' });

  test('is silent and succeeds when nothing is wrong', () => {
    plant({ 'src/queue/index.ts': "export * from './claim.ts';" });
    expect(run()).toMatchObject({ status: 0, stdout: '' });
  });

  test('prints one line a violation and exits with 1', () => {
    plant({ 'src/queue/claim.ts': "import '../cli/index.ts';\n\nimport '../http/index.ts';" });
    const { status, stdout } = run();
    expect(status).toBe(1);
    expect(stdout.trimEnd().split('\n')).toEqual([
      expect.stringContaining('src/queue/claim.ts:1 imports ../cli/index.ts; queue may import'),
      expect.stringContaining('src/queue/claim.ts:3 imports ../http/index.ts; queue may import'),
    ]);
  });
});

describe('the table', () => {
  test('names only rooms', () => {
    const named = Object.values(rooms).flatMap((room) => room.mayImport);
    expect(named.filter((name) => !Object.hasOwn(rooms, name))).toEqual([]);
  });

  test('has one direction: no room reaches itself', () => {
    const reach = (name: string, path: string[]): string[][] =>
      path.includes(name) ? [[...path, name]] : rooms[name]!.mayImport.flatMap((next) => reach(next, [...path, name]));
    expect(Object.keys(rooms).flatMap((name) => reach(name, []))).toEqual([]);
  });
});

test('every permission in the table is used', () => {
  const project = join(import.meta.dirname, '../..');
  const names = Object.keys(rooms);
  const unused = names.flatMap((room, place) => {
    const { mayImport } = rooms[room]!;
    // The rooms that put the others together may import all of them.
    if (names.slice(0, place).every((name) => mayImport.includes(name))) return [];
    const imported = globSync(`src/${room}/**/*.ts`, { cwd: project }).flatMap((path) =>
      importsOf(readFileSync(join(project, path), 'utf8')).map(({ specifier }) => basename(dirname(specifier))),
    );
    return mayImport
      .filter((name) => !ground.some((one) => one === name) && !imported.includes(name))
      .map((name) => `${room} imports nothing of ${name}`);
  });
  expect(unused).toEqual([]);
});

test('docs/internals/architecture.md shows the table as it is', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/internals/architecture.md'), 'utf8');
  const shown = [...page.matchAll(/^\| \[`(\w+)`\]\(\.\.\/\.\.\/src\/\1\) \| (.+?) \| (.+?) \|$/gm)].map(
    ([, name, owns, mayImport]) => {
      const names: Record<string, string[]> = {
        '–': [],
        ground: ['errors', 'events', 'lifecycle', 'database'],
      };
      return [name, { owns, mayImport: mayImport!.split(', ').flatMap((word) => names[word] ?? [word]) }];
    },
  );
  expect(Object.fromEntries(shown)).toEqual(rooms);
});

describe('finding imports', () => {
  const specifiers = (text: string) => importsOf(text).map(({ specifier, line }) => `${line} ${specifier}`);

  test.each([
    ["import './a.ts';", ['1 ./a.ts']],
    ['import a, { type B } from "./a.ts";', ['1 ./a.ts']],
    ["import {\n  a,\n  b,\n} from './a.ts';", ['4 ./a.ts']],
    ["export * as a from './a.ts';", ['1 ./a.ts']],
    ["const a = await import(\n  './a.ts'\n);", ['2 ./a.ts']],
    ['const a = await import(`./a.ts`);', ['1 ./a.ts']],
    ["type A = typeof import('./a.ts');", ['1 ./a.ts']],
    ["const a = require('./a.ts');", ['1 ./a.ts']],
  ])('sees %j', (text, found) => {
    expect(specifiers(text)).toEqual(found);
  });

  test.each([
    "// import './a.ts';",
    "/*\n * import a from './a.ts';\n */",
    'const text = "import \'./a.ts\'";',
    "const text = `\nimport './a.ts';\n`;",
    "const bytes = Buffer.from('./a.ts');",
    "const range = { from: './a.ts' };",
  ])('does not see %j', (text) => {
    expect(specifiers(text)).toEqual([]);
  });

  test.each([
    "const url = 'http://x'; ",
    'const quote = /[`"\']/g; ',
    'const comment = /\\/*/; ',
    'const half = a / 2; ',
  ])('is not led astray by %j', (text) => {
    expect(specifiers(`${text}import('./a.ts'); // import('./b.ts')`)).toEqual(['1 ./a.ts']);
  });
});
