import { readFileSync } from 'node:fs';
import { ground, rooms } from './rooms-table.ts';

const path = new URL('../docs/internals/architecture.md', import.meta.url);

/** `docs/internals/architecture.md` with the table of rooms that lint uses. */
export function architecturePage(): string {
  const [begin, end] = ['<!-- From scripts/rooms-table.ts, by npm run docs. -->', '<!-- End of the table. -->'];
  const page = readFileSync(path, 'utf8');
  const [before, rest] = split(page, begin);
  const [, after] = split(rest, end);
  return `${before}${begin}\n\n${roomsTable()}\n\n${end}${after}`;
}

function split(text: string, mark: string): [string, string] {
  const at = text.indexOf(mark);
  if (at < 0) throw new Error(`docs/internals/architecture.md lacks the line ${mark}`);
  return [text.slice(0, at), text.slice(at + mark.length)];
}

function roomsTable(): string {
  const rows = Object.entries(rooms).map(
    ([name, { owns, mayImport }]) => `| [\`${name}\`](../../src/${name}) | ${owns} | ${inWords(mayImport)} |`,
  );
  return ['| room | owns | may import |', '|---|---|---|', ...rows].join('\n');
}

function inWords(names: readonly string[]): string {
  const whole = ground.every((name) => names.includes(name));
  const listed = whole ? ['ground', ...names.filter((name) => !ground.some((one) => one === name))] : names;
  return listed.join(', ') || '–';
}
