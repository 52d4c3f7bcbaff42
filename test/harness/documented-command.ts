import type { Command } from 'commander';

/** Words of a line of a shell, without comments, variables before the command and what sends it to the background. */
export function wordsOf(line: string): string[] {
  const words = line.match(/'[^']*'|"[^"]*"|#.*$|[^\s'"]+/g) ?? [];
  const comment = words.findIndex((word) => word.startsWith('#'));
  const said = (comment < 0 ? words : words.slice(0, comment)).filter((word) => word !== '&');
  const begin = said.findIndex((word) => !/^[A-Z_]+=/.test(word));
  return begin < 0 ? [] : said.slice(begin);
}

/** What a command that the docs show has that the program does not; nothing if all is known. */
export function unknownIn(program: Command, words: readonly string[]): string | undefined {
  let command = program;
  let inArguments = false;
  for (const word of words) {
    if (word.startsWith('-')) {
      const flag = word.split('=', 1)[0]!;
      const known = [...command.options, ...program.options].flatMap(({ long, short }) => [long, short]);
      if (!known.includes(flag) && flag !== '--help') return `${command.name()} ${flag}`;
      continue;
    }
    const inner = inArguments ? undefined : command.commands.find((one) => one.name() === word);
    if (inner) command = inner;
    else if (command.commands.length > 0) return `${command.name()} ${word}`;
    else inArguments = true;
  }
  return undefined;
}
