import { globSync, readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { expect, it } from 'vitest';
import { createProgram } from '../../src/cli/program.ts';

const program = createProgram();

/** The commands of a page: in its shell examples, and as code within sentences. */
function commandsIn(text: string): string[] {
  const fences = [...text.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, body]) => body!.replaceAll('\\\n', ' '));
  const inline = [...text.replaceAll(/^```[\s\S]*?^```$/gm, '').matchAll(/`((?:npx )?pgfresh [a-z-][^`\n]*)`/g)];
  const lines = [...fences.flatMap((body) => body.split('\n')), ...inline.map(([, code]) => code!)];
  return lines.flatMap(
    (line) => /^(?:\S+=\S+ +)*(?:npx )?pgfresh ([a-z<-].*)/.exec(line.replace(/\s#.*$/, ''))?.[1] ?? [],
  );
}

/** What is wrong with a command line, if anything is. */
function mistakeIn(line: string): string | undefined {
  const words = line.trim().split(/\s+/);
  let command: Command = program;
  while (words.length > 0) {
    const inner = command.commands.find((one) => one.name() === words[0]);
    if (!inner) break;
    command = inner;
    words.shift();
  }
  if (command === program && !/^[-<]/.test(words[0]!)) return `there is no command ${words[0]}`;
  const known = new Set([command, program].flatMap((one) => one.options.flatMap(({ long, short }) => [long, short])));
  known.add('--help');
  const unknown = words.filter((word) => /^--[a-z]/.test(word)).find((word) => !known.has(word.split('=', 1)[0]));
  return unknown && `${command.name()} has no option ${unknown}`;
}

it.each(['README.md', ...globSync('docs/**/*.md')])('%s shows commands and options that exist', (file) => {
  const mistakes = commandsIn(readFileSync(file, 'utf8')).flatMap((line) => mistakeIn(line) ?? []);
  expect(mistakes).toEqual([]);
});

it('sees a command and an option that do not exist', () => {
  expect(mistakeIn('uninstal --yes')).toBe('there is no command uninstal');
  expect(mistakeIn('source pause market --until 5m')).toBe('pause has no option --until');
  expect(mistakeIn('migrate uninstall --yes')).toBeUndefined();
});
