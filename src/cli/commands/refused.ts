import type { Command } from 'commander';
import { timeText } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import { acceptRefused, listRefused, outcomes, readRefused, replayRefused } from '../../refresh/index.ts';
import { contextOf, withDatabase } from '../context.ts';
import { fetchedType } from '../fetched-type.ts';
import { table } from '../output.ts';
import { refuseUnknownCommand } from '../unknown-command.ts';

export function addRefused(program: Command): void {
  const command = program
    .command('refused')
    .description('show refused answers of sources, and check them again')
    .action((_options: object, refused: Command) => {
      refuseUnknownCommand(refused);
      refused.help();
    });
  command
    .command('list')
    .description('list the newest refused answers of each data type')
    .argument('[type]', 'only this data type')
    .action(showList);
  command
    .command('show')
    .description('show a refused answer with its body')
    .argument('<id>', 'number of the answer')
    .action(showOne);
  command
    .command('replay')
    .description(
      'check an answer again with the current configuration; fetches nothing, and writes nothing without --write',
    )
    .argument('<id>', 'number of the answer')
    .option('--write', 'accept it: write its rows, and delete all rows that it lacks')
    .action(replay);
  // Last, because subcommands inherit it.
  command.allowExcessArguments();
}

async function showList(type: string | undefined, _options: object, command: Command): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'refused list', async ({ database }) => {
    const answers = await listRefused(database, type);
    context.output.result({ answers }, () => {
      if (answers.length === 0) return 'Nothing was refused.';
      const head = ['id', 'at', 'data type', 'key', 'outcome', 'error'];
      const rows = answers.map(({ id, at, dataType, key, outcome, error }) => [
        String(id),
        timeText(at),
        dataType,
        key,
        outcome,
        error,
      ]);
      return table([head, ...rows]);
    });
  });
}

async function showOne(id: string, _options: object, command: Command): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'refused show', async ({ database }) => {
    const { body, typeId: _, ...answer } = await readRefused(database, parseId(id));
    const text = body.toString('utf8');
    context.output.result({ ...answer, body: text }, () => {
      const rows = Object.entries({ ...answer, at: timeText(answer.at) })
        .filter(([, value]) => value !== null)
        .map(([name, value]) => [name, typeof value === 'object' ? JSON.stringify(value) : String(value)]);
      return `${table(rows)}\n\n${text}`;
    });
  });
}

async function replay(id: string, { write = false }: { write?: boolean }, command: Command): Promise<void> {
  const context = contextOf(command);
  const config = await context.config();
  await withDatabase(context, 'refused replay', async ({ database }) => {
    const refused = await readRefused(database, parseId(id));
    const { type, now } = await fetchedType(database, config, refused.dataType);
    const { outcome: checked, error, rows } = await replayRefused(type, refused, now);
    const passed = outcomes[checked].verdict === 'complete';
    const outcome = passed && write ? await acceptRefused(database, type, refused, rows) : checked;
    const written = passed && write && outcome !== 'older_source';
    context.output.result({ id: refused.id, was: refused.outcome, outcome, error, rows, written }, () => {
      const then = `was ${refused.outcome}: ${refused.error}`;
      if (!passed) return `${refused.dataType} ${refused.key} ${then}\nnow ${outcome}: ${error ?? ''}`;
      if (written) return `${refused.dataType} ${refused.key} ${then}\nnow it is accepted and written: ${outcome}.`;
      if (write) return `${refused.dataType} ${refused.key} ${then}\nIt is not written: newer rows are there.`;
      if (refused.outcome === 'suspicious')
        return `${refused.dataType} ${refused.key} ${then}\nIt passes all other checks, with ${rows.length} row${rows.length === 1 ? '' : 's'}.\nNext: if it is true, accept it: pgfresh refused replay ${refused.id} --write`;
      const next = `Next: select pgfresh.retry_failed_jobs(p_data_type => '${refused.dataType}');`;
      return `${refused.dataType} ${refused.key} ${then}\nnow it passes, with ${rows.length} row${rows.length === 1 ? '' : 's'}. It is not written, because it is old.\n${next}`;
    });
    process.exitCode = passed && (!write || written) ? 0 : 1;
  });
}

function parseId(text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new PgfreshError('PGF_USAGE', { problem: `expected the number of a refused answer, got "${text}"` });
}
