import type { Command } from 'commander';
import { timeText } from '../../config/index.ts';
import {
  appliedFiles,
  dependantsOf,
  migrate,
  migrationScript,
  pendingMigrations,
  previewMigration,
  previewUninstall,
  readSqlFiles,
  uninstall,
  type MigrationStep,
  type ObjectChanges,
} from '../../database/index.ts';
import { exitCodes, PgfreshError } from '../../errors/index.ts';
import { isEmpty, previewSync, readProblems, syncRegistry } from '../../registry/index.ts';
import { isSettled, previewJobs, syncJobs } from '../../schedule/index.ts';
import { isUncreated, sentenceOf } from '../../watch/index.ts';
import { contextOf, lookAtAnyDatabase, withAnyDatabase, type CommandContext } from '../context.ts';
import { applyGrants, grantStatements, parseGrants, requireLogins, type Grantee } from '../grants.ts';
import { table } from '../output.ts';
import { jobLines, jobReport, registryLines, registryReport } from '../registry-report.ts';
import { refuseUnknownCommand } from '../unknown-command.ts';

export function addMigrate(program: Command): void {
  const command = program
    .command('migrate')
    .description("bring the database's schemas to this version, and its registry to the configuration")
    .option('--dry-run', 'show what would be done, and do nothing')
    .option('--sql', 'print a script for psql instead of doing it')
    .option('--recreate-dependants', 'drop views of yours that are in the way, and create them again afterwards')
    .option(
      '--grants <list>',
      'print what logins of their own need, such as worker=app_worker,gateway=app_gateway; table=… and read=… behind a login add tables that it writes or reads besides those of the data types',
      parseGrants,
    )
    .option('--apply', 'with --grants: give these rights instead of printing them')
    .action(runMigrate);
  command.command('status').description('show what was applied and what is missing').action(showStatus);
  command
    .command('uninstall')
    .description("drop pgfresh's schemas, triggers and roles; your own tables stay")
    .option('--yes', 'drop them; without this, only list what would be dropped')
    .action(runUninstall);
  // Last: the two above would inherit it.
  command.allowExcessArguments();
}

interface MigrateOptions {
  readonly dryRun?: boolean;
  readonly sql?: boolean;
  readonly recreateDependants?: boolean;
  readonly grants?: readonly Grantee[];
  readonly apply?: boolean;
}

async function runMigrate(options: MigrateOptions, command: Command): Promise<void> {
  refuseUnknownCommand(command);
  const context = contextOf(command);
  if (options.grants) return showGrants(context, options.grants, options.apply === true);
  if (options.apply) throw new PgfreshError('PGF_USAGE', { problem: '--apply goes with --grants' });
  const recreateDependants = options.recreateDependants === true;
  if (options.sql && recreateDependants)
    throw new PgfreshError('PGF_USAGE', { problem: '--recreate-dependants does not go with --sql' });
  if (options.sql) return showScript(context);
  if (options.dryRun) return showPending(context, recreateDependants);
  const { output, events } = context;
  await withAnyDatabase(context, 'migrate', async ({ database }) => {
    const migrated: string[] = [];
    events.on('schema.migrated', (event) => migrated.push(`Migrated the ${sentenceOf(event).text}`));
    const files = await readSqlFiles();
    const { applied, objects } = await migrate(database, { files, events, drainMs: 60_000, recreateDependants });
    const diff = await syncRegistry(database, await context.config(), events);
    const jobs = await syncJobs(database, await context.config(), events);
    const report = registryReport(diff, await readProblems(database));
    output.result({ applied: applied.map(nameOf), objects, registry: report, jobs: jobReport(jobs) }, () =>
      upToDate(applied, isEmpty(diff) && isSettled(jobs), [
        ...(output.debug ? listed(applied, 'Applied') : []),
        ...migrated,
        ...objectLines(objects, { drop: 'Dropped', replace: 'Replaced', create: 'Created' }, output.debug),
        ...registryLines(report),
        ...jobLines(jobReport(jobs)),
      ]),
    );
  });
}

async function showGrants(context: CommandContext, grantees: readonly Grantee[], apply: boolean): Promise<void> {
  await withAnyDatabase(context, 'grants', async ({ database }) => {
    const { length: count } = await pendingMigrations(database, await readSqlFiles());
    if (count > 0) throw new PgfreshError('PGF_MIGRATION_PENDING', { count });
    const statements = await grantStatements(database, grantees, await context.config());
    if (apply) {
      await requireLogins(database, grantees);
      await applyGrants(database, statements);
    }
    context.output.result({ grants: statements, applied: apply }, () => statements.join('\n'));
  });
}

async function showPending(context: CommandContext, recreateDependants: boolean): Promise<void> {
  await lookAtAnyDatabase(context, 'migrate', async (database) => {
    const { pending: steps, objects } = await previewMigration(database, await readSqlFiles(), recreateDependants);
    const diff = await previewSync(database, await context.config());
    const jobs = await previewJobs(database, await context.config());
    // What a pending migration brings cannot be asked yet.
    const report = registryReport(diff, steps.length === 0 ? await readProblems(database) : []);
    context.output.result({ pending: steps.map(nameOf), objects, registry: report, jobs: jobReport(jobs) }, () =>
      upToDate(steps, isEmpty(diff) && isSettled(jobs), [
        ...listed(steps, 'Would apply'),
        ...objectLines(objects, { drop: 'Would drop', replace: 'Would replace', create: 'Would create' }, true),
        ...(objects.created.length > 0 && steps.some(({ kind }) => kind === 'migration') ? [untried] : []),
        ...registryLines(report),
        ...jobLines(jobReport(jobs)),
      ]),
    );
  });
}

async function showScript(context: CommandContext): Promise<void> {
  await lookAtAnyDatabase(context, 'migrate', async (database) => {
    const files = await readSqlFiles();
    try {
      const script = migrationScript(files, await previewMigration(database, files));
      context.output.result({ script }, () => script);
    } catch (error) {
      // With --json the error is the only document on stdout.
      if (error instanceof PgfreshError && error.code === 'PGF_UPGRADE_BLOCKED' && !context.output.json) {
        const script = await dependantsOf(database, files);
        if (script !== '') context.output.result({ script }, () => script);
      }
      throw error;
    }
  });
}

async function showStatus(_options: object, command: Command): Promise<void> {
  const context = contextOf(command);
  await lookAtAnyDatabase(context, 'migrate status', async (database) => {
    const [pending, applied] = [await pendingMigrations(database, await readSqlFiles()), await appliedFiles(database)];
    const value = {
      applied: applied.map(({ kind, name, applied_at }) => ({ name: `${kind}/${name}`, appliedAt: applied_at })),
      pending: pending.map(nameOf),
    };
    context.output.result(value, () => {
      const rows = [
        ...value.applied.map(({ name, appliedAt }) => [name, `applied ${timeText(appliedAt)}`]),
        ...value.pending.map((name) => [
          name,
          value.applied.some((entry) => entry.name === name)
            ? 'changed, applied again by "pgfresh migrate"'
            : 'missing',
        ]),
      ];
      return table(rows);
    });
  });
}

async function runUninstall(options: { yes?: boolean }, command: Command): Promise<void> {
  const context = contextOf(command);
  if (await isUncreated((await context.config()).settings))
    return context.output.result(
      { installed: false, dropped: false },
      () => 'Nothing to do: there is no database yet.',
    );
  await withAnyDatabase(context, 'uninstall', async ({ database, facts }) => {
    const preview = await (options.yes ? uninstall(database) : previewUninstall(database));
    if (!preview.installed)
      return context.output.result(
        { ...preview, dropped: false },
        () => 'Nothing to do: pgfresh is not installed in this database.',
      );
    const objects = preview.objects.map(({ kind, count }) => `${count} ${kind}${count === 1 ? '' : 's'}`).join(', ');
    const text = [
      `${options.yes ? 'Dropped' : 'Would drop'}: The schemas pgfresh and pgfresh_engine of ${facts.address}, with ${objects}.`,
      ...section('Is in them or depends on them, and goes too:', preview.dependents),
      ...section('Your data would go too, so nothing is dropped before you change this:', preview.blockers),
      ...section('Rights that are revoked:', preview.roles.rights),
      ...section('Roles that are dropped:', preview.roles.dropped),
      ...section(
        'Roles that stay:',
        preview.roles.kept.map(({ role, reason }) => `${role}: ${reason}`),
      ),
      'Your tables stay.',
    ];
    context.output.result({ ...preview, dropped: options.yes === true }, () => text.join('\n'));
    if (options.yes) return;
    // With --json the result is the only document on stdout.
    if (!context.output.json) throw new PgfreshError('PGF_UNINSTALL_UNCONFIRMED', {});
    process.exitCode = exitCodes.usage;
  });
}

function section(title: string, names: readonly string[]): string[] {
  return names.length === 0 ? [] : [title, ...names.map((name) => `  ${name}`)];
}

function listed(steps: readonly MigrationStep[], verb: string): string[] {
  return steps.map((step) => `${verb} ${nameOf(step)}`);
}

const untried = 'Numbered files are not tried: what they move is listed as dropped and created.';

/** The changes to objects; `isFull` also lists new objects. */
function objectLines(
  { dropped, replaced, created, yours }: ObjectChanges,
  verbs: { readonly drop: string; readonly replace: string; readonly create: string },
  isFull: boolean,
): string[] {
  return [
    ...dropped.map((name) => `${verbs.drop} ${name}`),
    ...replaced.map((name) => `${verbs.replace} ${name}`),
    ...(isFull ? created.map((name) => `${verbs.create} ${name}`) : []),
    ...yours.map((name) => `Left alone: ${name}, which is not of pgfresh`),
  ];
}

function upToDate(steps: readonly MigrationStep[], synced: boolean, lines: readonly string[]): string {
  const first = steps.length === 0 && synced ? ['Nothing to do: the database is up to date.'] : [];
  return [...first, ...lines].join('\n');
}

function nameOf({ kind, file }: MigrationStep): string {
  return `${kind}/${file.name}`;
}
