import type { Command } from 'commander';
import { durationText, timeText } from '../../config/index.ts';
import { explainPair, type Explanation } from '../../planner/index.ts';
import { namingUnknownType } from '../../registry/index.ts';
import { contextOf, withDatabase } from '../context.ts';
import { table } from '../output.ts';

export function addExplain(program: Command): void {
  program
    .command('explain')
    .description('explain why a pair is or is not being refreshed, and when it will be')
    .argument('<type>', 'data type, for instance quote')
    .argument('<key>', 'key, for instance AAPL')
    .action(async (type: string, key: string, _options: object, command: Command) => {
      const context = contextOf(command);
      await withDatabase(context, 'explain', async ({ database }) => {
        const explanation = await namingUnknownType(database, type, () => explainPair(database, type, key));
        context.output.result(explanation, () => described(explanation));
      });
    });
}

function described(pair: Explanation): string {
  const { viewers, viewers_by: by, job } = pair;
  const rows = [
    ['viewers', viewers === 0 ? 'none' : `${viewers} (${by.heartbeat} by SQL, ${by.gateway} through gateways)`],
    ['data', `${pair.state}${pair.data_at === null ? '' : `, of ${timeText(pair.data_at)}`}`],
    ...(pair.confirmed_at === null ? [] : [['confirmed', timeText(pair.confirmed_at)]]),
    ...(pair.source_at === null ? [] : [['at the source', `of ${timeText(pair.source_at)}`]]),
    ['activity', pair.reason === null ? pair.activity : `${pair.activity} (${pair.reason})`],
    ...pair.obstacles.map(({ reason, words }) => [`also ${reason}`, words]),
    ['ttl', durationText(pair.ttl_seconds * 1_000)],
    ['due', pair.due_at === null ? '–' : timeText(pair.due_at)],
    ['job', job === null ? 'none' : `${job.id}, ${job.status}, priority ${job.priority}, attempt ${job.attempt}`],
    ['last outcome', pair.last_outcome === null ? '–' : withTime(pair.last_outcome, pair.last_outcome_at)],
    ['last success', pair.last_success_at === null ? 'never' : timeText(pair.last_success_at)],
    ...pair.outcomes.map(({ ended_at, outcome, error }) => [
      timeText(ended_at),
      [outcome, error].filter(Boolean).join(': '),
    ]),
  ];
  return `${pair.data_type} ${pair.key}: ${pair.words}\n\n${table(rows)}`;
}

function withTime(words: string, time: string | null): string {
  return time === null ? words : `${words}, ${timeText(time)}`;
}
