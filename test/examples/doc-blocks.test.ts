import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { blocksOf, type DocBlock } from '../harness/doc-blocks.ts';
import { playSessions } from '../harness/sql-session.ts';

// A compiler takes both cores for seconds, and on a busy machine for many.
vi.setConfig({ testTimeout: 120_000 });

// The reference is written from code, or has tests of its own.
const pages = ['README.md', ...globSync('docs/{start,guides,production,internals}/*.md')].toSorted();
const blocks = pages.flatMap((page) => blocksOf(page));
const placeOf = ({ page, line }: DocBlock): string => `${page}:${line}`;

/** What examples import and pages do not show. */
const besides: Readonly<Record<string, string>> = {
  'vue.d.ts': `declare module 'vue' {
  export interface ShallowRef<T> { value: T }
  export function shallowRef<T>(value: T): ShallowRef<T>;
  export function onScopeDispose(end: () => void): void;
}
`,
  'docs/guides/embedding.md/0/pgfresh.config.ts': `import { defineConfig } from 'pgfresh';
export default defineConfig({});
`,
};

describe('a block of code', () => {
  it('is in a language that is checked, or says which test covers it or why none does', () => {
    // Commands are looked up by test/cli/docs.test.ts.
    const checked = new Set(['ts', 'tsx', 'sql', 'sh']);
    expect(blocks.filter(({ language, excuse }) => !checked.has(language) && !excuse).map(placeOf)).toEqual([]);
  });

  it('names a test that is there and reads its page', () => {
    const wrong = blocks.filter(({ page, excuse }) => {
      if (excuse?.kind !== 'tested') return false;
      return !existsSync(excuse.text) || !readFileSync(excuse.text, 'utf8').includes(page);
    });
    expect(wrong.map(placeOf)).toEqual([]);
  });
});

it('every example in TypeScript compiles', async () => {
  const cache = 'node_modules/.cache';
  await mkdir(cache, { recursive: true });
  const folder = await mkdtemp(join(cache, 'examples-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const examples = blocks.filter(({ language, excuse }) => /^tsx?$/.test(language) && !excuse);
  // What declares types for the whole program must not meet the others.
  const apart = examples.filter((example) => example.text.includes('declare module'));
  const projects = [examples.filter((example) => !apart.includes(example)), ...apart.map((example) => [example])];
  for (const [place, project] of projects.entries()) {
    const path = join(folder, String(place));
    for (const [name, code] of Object.entries({ ...besides, ...filesOf(project) })) {
      await mkdir(dirname(join(path, name)), { recursive: true });
      await writeFile(join(path, name), code);
    }
    expect(await objectionsTo(path)).toBe('');
  }
});

/** The examples as files: those of a page together, until a name comes again. */
function filesOf(examples: readonly DocBlock[]): Record<string, string> {
  const files: Record<string, string> = {};
  const rounds = new Map<string, number>();
  for (const { page, line, language, file, text: code } of examples) {
    const name = file ?? `line-${line}.${language}`;
    const round = rounds.get(page) ?? 0;
    const isTaken = `${page}/${round}/${name}` in files;
    if (isTaken || !rounds.has(page)) rounds.set(page, isTaken ? round + 1 : round);
    files[`${page}/${rounds.get(page)}/${name}`] = code;
  }
  return files;
}

/** What the compiler has against a folder; nothing if all is well. */
async function objectionsTo(folder: string): Promise<string> {
  const config = {
    extends: join(process.cwd(), 'tsconfig.json'),
    compilerOptions: { lib: ['es2024', 'dom'], jsx: 'react-jsx', noUnusedLocals: false },
    include: ['.'],
  };
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config));
  const compiler = spawn('node_modules/.bin/tsc', ['--noEmit', '-p', folder]);
  const [output] = await Promise.all([text(compiler.stdout), once(compiler, 'exit')]);
  return output;
}

const played = pages.filter((page) => blocks.some((block) => block.page === page && isPlayed(block)));

it.each(played)('the SQL of %s runs, and answers as it says', async (page) => {
  const sessions = blocksOf(page).filter(isPlayed);
  expect(await playSessions(sessions.map((block) => block.text))).toBeGreaterThan(0);
});

function isPlayed({ language, excuse }: DocBlock): boolean {
  return language === 'sql' && !excuse;
}

it('docs/README.md lists every page', () => {
  const contents = readFileSync('docs/README.md', 'utf8');
  const all = globSync('docs/*/*.md').map((page) => page.replace('docs/', ''));
  expect(all.filter((page) => !contents.includes(`](${page})`))).toEqual([]);
});
