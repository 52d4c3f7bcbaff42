import { Help, type Command } from 'commander';

const order = ['Arguments:', 'Commands:', 'Options:', 'Global Options:'];

/** The help of a command with what is its own first: its commands, then its options, and those of every command last. */
export function formatHelp(command: Command, helper: Help): string {
  const [usage, ...sections] = Help.prototype.formatHelp
    .call(helper, command, helper)
    .split(/\n(?=[A-Z][A-Za-z ]*:\n)/);
  const place = (section: string): number => order.indexOf(section.split('\n', 1)[0]!);
  return [usage!, ...sections.toSorted((a, b) => place(a) - place(b))].map((part) => `${part.trimEnd()}\n`).join('\n');
}
