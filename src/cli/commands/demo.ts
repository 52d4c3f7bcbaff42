import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { findConfigFile } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import { roleNames } from '../../runtime/index.ts';
import { contextOf } from '../context.ts';
import { runUntilStopped } from '../process.ts';

// A checkout has the example's sources; the package has the built example.
const configuration =
  extname(import.meta.filename) === '.ts'
    ? '../../../examples/market/pgfresh.config.ts'
    : '../../market/pgfresh.config.js';

export function addDemo(program: Command): void {
  program
    .command('demo')
    .description('show what pgfresh does: a made-up market with a live board, on an embedded PostgreSQL')
    .action(async (_options: object, command: Command) => {
      const file = findConfigFile(process.cwd());
      if (file !== undefined) throw new PgfreshError('PGF_DEMO_FOLDER', { file });
      const context = contextOf(command, {
        configFile: fileURLToPath(new URL(configuration, import.meta.url)),
        // Ignores DATABASE_URL: the demo's tables do not belong into another database.
        env: { ...process.env, DATABASE_URL: undefined, PGFRESH_LISTEN_URL: undefined },
      });
      await runUntilStopped(context, { roles: roleNames, migrate: true, dev: true });
    });
}
