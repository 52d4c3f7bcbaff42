import { Help, type Command } from 'commander';

const order = ['Arguments:', 'Commands:', 'Options:', 'Global Options:'];

/** Formats help with a command's own arguments, commands and options first, and global options last. */
export function formatHelp(command: Command, helper: Help): string {
  const [usage, ...sections] = Help.prototype.formatHelp
    .call(helper, command, helper)
    .split(/\n(?=[A-Z][A-Za-z ]*:\n)/);
  const place = (section: string): number => order.indexOf(section.split('\n', 1)[0]!);
  return [usage!, ...sections.toSorted((a, b) => place(a) - place(b))].map((part) => `${part.trimEnd()}\n`).join('\n');
}
