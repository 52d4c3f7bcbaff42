import type { Command } from 'commander';
import { listTypes, unknownType, type ListedType } from '../../registry/index.ts';
import { contextOf, lookAtDatabase } from '../context.ts';
import { table } from '../output.ts';
import { refuseUnknownCommand } from '../unknown-command.ts';

const empty = `No data types yet.
Next: Add one to dataTypes of pgfresh.config.ts and run "pgfresh migrate", or insert a row into pgfresh.data_type_registry; docs/guides/data-types.md shows both.`;

export function addType(program: Command): void {
  const command = program
    .command('type')
    .description('show the data types that are kept fresh')
    .action((_options: object, type: Command) => {
      refuseUnknownCommand(type);
      type.help();
    });
  command.command('list').description('list all registered data types').action(showList);
  command
    .command('show')
    .description('show all details of a data type')
    .argument('<name>', 'name of the data type')
    .action(showOne);
  // Last, because subcommands inherit it.
  command.allowExcessArguments();
}

async function showList(_options: object, command: Command): Promise<void> {
  const context = contextOf(command);
  const { dataTypes: configured = [] } = await context.config();
  const types = await lookAtDatabase(context, 'type list', listTypes);
  context.output.result({ types }, () => (types.length === 0 ? nothingIn(configured) : listed(types)));
}

function nothingIn(configured: readonly { readonly name: string }[]): string {
  if (configured.length === 0) return empty;
  const names = configured.map(({ name }) => name).join(', ');
  return `No data types in the database yet; the configuration has ${names}.\nNext: "pgfresh dev" or "pgfresh migrate" registers them.`;
}

async function showOne(name: string, _options: object, command: Command): Promise<void> {
  const context = contextOf(command);
  const types = await lookAtDatabase(context, 'type show', listTypes);
  const type = types.find((one) => one.data_type === name);
  if (!type)
    throw unknownType(
      name,
      types.map((one) => one.data_type),
    );
  context.output.result({ type }, () => {
    const { problem, ...columns } = type;
    const rows = Object.entries(columns).map(([column, value]) => [column, cell(value)]);
    const state = problem === null ? [] : [`Not planned: ${problem.problem}`, `Next: ${problem.next}`];
    return [table(rows.filter(([, text]) => text !== '')), ...state].join('\n');
  });
}

function listed(types: readonly ListedType[]): string {
  const head = ['data type', 'source', 'table', 'ttl', 'strategy', 'managed by', 'state'];
  const rows = types.map((type) => [
    ...[type.data_type, type.source, type.table_name, type.ttl, type.refresh_strategy, type.managed_by].map(cell),
    type.problem?.problem ?? 'ok',
  ]);
  return table([head, ...rows]);
}

function cell(value: ListedType['source']): string {
  return Array.isArray(value) ? value.join(', ') : value === null ? '' : String(value);
}
