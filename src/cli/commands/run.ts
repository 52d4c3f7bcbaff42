import type { Command } from 'commander';
import { readRoles, roleNames, type Role } from '../../runtime/index.ts';
import { contextOf } from '../context.ts';
import { runUntilStopped } from '../process.ts';

export function addDev(program: Command): void {
  program
    .command('dev')
    .description('run all roles in one process; without DATABASE_URL, on an embedded PostgreSQL')
    .action(async (_options: object, command: Command) =>
      runUntilStopped(contextOf(command), { roles: roleNames, migrate: true, dev: true }),
    );
}

export function addRun(program: Command): void {
  program
    .command('run')
    .description('run some or all roles in this process; any number of processes may run')
    .option('--roles <names>', `roles, separated by commas: ${roleNames.join(', ')}`, roleNames.join(','))
    .option('--migrate', 'migrate the database first')
    .option('--types <names>', 'data types that a worker refreshes, separated by commas (default: all)')
    .action(async (options: { roles: string; migrate?: boolean; types?: string }, command: Command) =>
      runUntilStopped(contextOf(command), {
        roles: parseRoles(options.roles),
        migrate: options.migrate === true,
        types: parseTypes(options.types),
      }),
    );
}

export function addWorker(program: Command): void {
  program
    .command('worker')
    .description('run a worker: short for "run --roles worker"')
    .option('--types <names>', 'data types that it refreshes, separated by commas (default: all)')
    .action(async (options: { types?: string }, command: Command) =>
      runUntilStopped(contextOf(command), { roles: ['worker'], migrate: false, types: parseTypes(options.types) }),
    );
}

function parseTypes(text: string | undefined): string[] | undefined {
  return text
    ?.split(',')
    .map((type) => type.trim())
    .filter(Boolean);
}

function parseRoles(text: string): Role[] {
  return readRoles(text.split(',').map((role) => role.trim()));
}
