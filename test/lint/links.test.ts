import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';

const root = dirname(dirname(import.meta.dirname));
const pages = globSync(['*.md', 'docs/**/*.md', '.github/**/*.md'], { cwd: root });

const read = (path: string): string => readFileSync(join(root, path), 'utf8');

/** The page without its code, in which nothing is a link. */
const prose = (path: string): string =>
  read(path)
    .replaceAll(/^```[\s\S]*?^```$/gm, '')
    .replaceAll(/`[^`\n]*`/g, 'code');

/** Targets within the project, as they are written. */
function linksOf(text: string): string[] {
  const targets = [...text.matchAll(/\]\(<?([^)\s>]+)>?\)/g)].map(([, target]) => target!);
  return targets.filter((target) => !/^[a-z]+:/.test(target));
}

/** The anchors of a page, as GitHub makes them from its headings. */
function anchorsOf(path: string): Set<string> {
  const anchors = new Set<string>();
  for (const [, heading] of read(path)
    .replaceAll(/^```[\s\S]*?^```$/gm, '')
    .matchAll(/^#+ (.+)$/gm)) {
    const plain = heading!.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase();
    const anchor = plain.replaceAll(/[^\p{L}\p{N}\p{Pc} -]/gu, '').replaceAll(' ', '-');
    let unused = anchor;
    for (let count = 1; anchors.has(unused); count++) unused = `${anchor}-${count}`;
    anchors.add(unused);
  }
  return anchors;
}

function broken(page: string, target: string): boolean {
  const [file, anchor] = target.split('#') as [string, string?];
  const path = file === '' ? page : join(dirname(page), file);
  if (!existsSync(join(root, path))) return true;
  return anchor !== undefined && path.endsWith('.md') && !anchorsOf(path).has(anchor);
}

test.each(pages)('every link of %s leads somewhere', (page) => {
  expect(linksOf(prose(page)).filter((target) => broken(page, target))).toEqual([]);
});

test('every page that code names is there', () => {
  // The benches install the systems that they compare with into their own folder.
  const files = globSync(['{src,client,sql,scripts,examples,bench}/**/*.{ts,tsx,sql}'], {
    cwd: root,
    exclude: ['**/node_modules/**'],
  });
  const named = files.flatMap((file) =>
    [...read(file).matchAll(/\bdocs\/[\w/-]+\.md(?:#[\w-]+)?/g)].map(([target]) => [file, target] as const),
  );
  expect(named.length).toBeGreaterThan(20);
  expect(named.filter(([, target]) => broken('README.md', target))).toEqual([]);
});

describe('in the package', () => {
  const { files } = JSON.parse(read('package.json')) as { files: string[] };
  const packed = ['README.md', 'LICENSE', ...files];
  // This page is about the sources, which only a clone has.
  const readers = ['README.md', ...globSync('docs/**/*.md', { cwd: root })].filter(
    (page) => page !== 'docs/internals/architecture.md',
  );

  test.each(readers)('%s links to nothing that is not packed', (page) => {
    const targets = linksOf(prose(page)).map((target) => join(dirname(page), target.split('#', 1)[0]!));
    const lacking = targets.filter((path) => !packed.some((entry) => path === entry || path.startsWith(`${entry}/`)));
    expect(lacking.filter((path) => path !== '.' && path !== 'docs')).toEqual([]);
  });
});

describe('a link is broken', () => {
  test.each(['none.md', '../guides/none.md', 'queue.md#none', '#none', '../../src/none/'])('if it is %s', (target) => {
    expect(broken('docs/internals/architecture.md', target)).toBe(true);
  });

  test.each(['queue.md', '../guides/scheduling.md#a-job-in-the-configuration', '#the-rooms', '../../src/queue'])(
    'not if it is %s',
    (target) => {
      expect(broken('docs/internals/architecture.md', target)).toBe(false);
    },
  );
});

test('each step of the way of one job names the files that do it', () => {
  const [, section] = /^## The way of one job\n([\s\S]*?)^## /m.exec(read('docs/internals/architecture.md'))!;
  const steps = section!.split(/^(?=\d+\. )/m).slice(1);
  expect(steps).toHaveLength(10);
  const silent = steps.filter(
    (step) => !linksOf(step).some((target) => /^\.\.\/\.\.\/(?:src|sql|client)\/.+\.\w+$/.test(target)),
  );
  expect(silent).toEqual([]);
});
