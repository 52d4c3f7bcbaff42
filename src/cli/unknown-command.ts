import type { Command } from 'commander';
import { nearMiss } from '../config/index.ts';
import { PgfreshError } from '../errors/index.ts';

/** For a command that does something by itself and has subcommands: a word that is none of them is a mistyped one. */
export function refuseUnknownCommand({ args: [word], commands }: Command): void {
  if (word === undefined) return;
  const near = nearMiss(
    word,
    commands.map((command) => command.name()),
  );
  const hint = near ? ` (Did you mean ${near}?)` : '';
  throw new PgfreshError('PGF_USAGE', { problem: `unknown command '${word}'${hint}` });
}
