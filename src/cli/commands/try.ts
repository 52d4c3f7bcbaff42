import { styleText } from 'node:util';
import type { Command } from 'commander';
import { PgfreshError } from '../../errors/index.ts';
import { thenStop } from '../../lifecycle/index.ts';
import { outcomes, tryPair, type RowChange, type Trial } from '../../refresh/index.ts';
import { admitKey } from '../../registry/index.ts';
import { SourceClient, takeCall } from '../../sources/index.ts';
import { contextOf, withDatabase } from '../context.ts';
import { fetchedType } from '../fetched-type.ts';

const marks = { true: styleText('green', '✓'), false: styleText('red', '✗'), null: styleText('gray', '–') } as const;

export function addTry(program: Command): void {
  program
    .command('try')
    .description('fetch a pair once, show every check and what would be written; nothing is written')
    .argument('<type>', 'data type, for instance quote')
    .argument('<key>', 'key, for instance AAPL')
    .option('--metadata <json>', 'metadata of the job, as a JSON object')
    .action(async (name: string, key: string, options: { metadata?: string }, command: Command) => {
      const context = contextOf(command);
      const metadata = parseMetadata(options.metadata);
      const config = await context.config();
      await withDatabase(context, 'try', async ({ database }) => {
        const { type, now } = await fetchedType(database, config, name);
        const since = performance.now();
        // Refuses an invalid key before any call.
        const wanted = { key: await admitKey(database, name, key), metadata };
        const source = config.sources.find((one) => one.name === type.source)!;
        const client = new SourceClient(source, {
          events: context.events,
          now: () => now.getTime() + performance.now() - since,
          takeCall: (apiKey) => takeCall(database, type.sourceId, apiKey + 1),
        });
        const { signal } = new AbortController();
        const trying = tryPair({ db: database, client, type, wanted, signal });
        const trial = await thenStop(trying, () => client.close());
        context.output.result(trial, () => described(trial));
        process.exitCode = outcomes[trial.outcome].verdict === 'complete' ? 0 : 1;
      });
    });
}

function parseMetadata(text: string | undefined): object | null {
  if (text === undefined) return null;
  try {
    const value = JSON.parse(text) as unknown;
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  } catch {
    // Reported below.
  }
  throw new PgfreshError('PGF_USAGE', {
    problem: `--metadata: expected a JSON object such as {"full": true}, got ${text}`,
  });
}

function described({ dataType, key, outcome, error, checks, changes, cost }: Trial): string {
  const lines = checks.map(({ name, ok, detail }) => `${marks[`${ok}`]} ${name.padEnd(16)} ${detail}`);
  return [
    ...lines,
    '',
    ...changes.flatMap(changeLines),
    `${dataType} ${key}: ${outcome}. ${error ?? checks.at(-1)!.detail}`,
    `${cost.calls} call${cost.calls === 1 ? '' : 's'}, ${cost.bytes} bytes, which the ledger counts. Nothing was written to your table.`,
  ].join('\n');
}

function changeLines({ change, row, before }: RowChange): string[] {
  if (change === 'same') return [`= ${JSON.stringify(row)}`];
  if (change !== 'changed') return [`${change === 'added' ? '+' : '-'} ${JSON.stringify(row)}`];
  const columns = Object.entries(before!).map(
    ([column, old]) => `    ${column}: ${JSON.stringify(old)} → ${JSON.stringify(row[column])}`,
  );
  return [`~ ${JSON.stringify(row)}`, ...columns];
}
