import { CommanderError } from 'commander';
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
    if (!(error instanceof CommanderError)) return output.failure(error);
    // --help and --version end this way too.
    if (error.exitCode === 0) return 0;
    return output.failure(
      new PgfreshError('PGF_USAGE', { problem: error.message.replace(/^error: /, '').replace(/\n/, ' ') }),
    );
  }
}
