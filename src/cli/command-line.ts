import { CommanderError, type Command } from 'commander';
import { PgfreshError } from '../errors/index.ts';
import { Output } from './output.ts';
import { createProgram } from './program.ts';

/** Runs a command line to its end; returns the exit code. */
export async function runCommandLine(args: readonly string[]): Promise<number> {
  const program = createProgram();
  try {
    await program.parseAsync(args, { from: 'user' });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    const output = new Output({ json: args.includes('--json'), debug: args.includes('--debug') });
    const next = `Run "${helpOf(program, args)}" to see its usage.`;
    if (error instanceof PgfreshError && error.code === 'PGF_USAGE')
      return output.failure(new PgfreshError('PGF_USAGE', { problem: error.message }, { cause: error, next }));
    if (!(error instanceof CommanderError)) return output.failure(error);
    // --help and --version end this way too.
    if (error.exitCode === 0) return 0;
    return output.failure(
      new PgfreshError('PGF_USAGE', { problem: error.message.replace(/^error: /, '').replace(/\n/, ' ') }, { next }),
    );
  }
}

/** The help command that fits the arguments best. */
function helpOf(program: Command, args: readonly string[]): string {
  let command = program;
  const names = ['pgfresh'];
  for (const word of args) {
    const found = command.commands.find((one) => one.name() === word);
    if (!found) continue;
    command = found;
    names.push(word);
  }
  return `${names.join(' ')} --help`;
}
