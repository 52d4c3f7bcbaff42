import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');

const publicFunctions = new Set(
  globSync('sql/api/*.sql', { cwd: root }).flatMap((path) =>
    [...readFileSync(join(root, path), 'utf8').matchAll(/create or replace function pgfresh\.(\w+)/g)].map(
      (match) => match[1]!,
    ),
  ),
);

/** A function of ours, or a call of one, with its schema. */
export function inSchema(call: string): string {
  const [name] = /^\w+/.exec(call)!;
  return `${publicFunctions.has(name) ? 'pgfresh' : 'pgfresh_engine'}.${call}`;
}
