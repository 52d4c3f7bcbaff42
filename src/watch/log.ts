import { styleText } from 'node:util';
import { pino } from 'pino';
import type { Settings } from '../config/index.ts';
import type { Events, PgfreshEvent } from '../events/index.ts';
import { LineBudget } from './line-budget.ts';
import { sentenceOf, type Level } from './sentence.ts';

interface Output {
  readonly isTTY?: boolean;
  write(text: string): unknown;
}

/** Logs every event as a line: readable on a terminal, as JSON elsewhere. Returns a function that stops it. */
export function logEvents(events: Events, level: Settings['logLevel'], output: Output): () => void {
  const logger = pino(
    { level, base: { pid: process.pid }, timestamp: pino.stdTimeFunctions.isoTime },
    output.isTTY ? { write: (line) => output.write(prettyLine(line)) } : output,
  );
  const budget = new LineBudget();
  return events.subscribe((event) => {
    const { level: usual, text } = sentenceOf(event);
    const own = output.isTTY === true && usual === 'info' && isInBanner(event) ? 'debug' : usual;
    if (!logger.isLevelEnabled(own)) return;
    const leftOut = budget.ask(event.type);
    if (leftOut !== undefined)
      logger[own](event, leftOut === 0 ? text : `${text} (${leftOut} lines before it left out)`);
  });
}

/** Events that the banner at the end of a start also tells, on the same terminal. */
function isInBanner(event: PgfreshEvent): boolean {
  switch (event.type) {
    case 'database.ready':
      return event.kind === 'embedded';
    case 'worker.started':
      return event.types.length > 0;
    case 'registry.synced':
    case 'jobs.synced':
    case 'scheduler.started':
    case 'http.listening':
    case 'process.started':
      return true;
    default:
      return false;
  }
}

const colours = { debug: 'gray', info: 'green', warn: 'yellow', error: 'red' } as const;
const levelNames: Readonly<Record<number, Level>> = { 20: 'debug', 30: 'info', 40: 'warn', 50: 'error' };

function prettyLine(line: string): string {
  const { time, level, msg } = JSON.parse(line) as { time: string; level: number; msg: string };
  const name = levelNames[level] ?? 'info';
  const clock = styleText('gray', new Date(time).toTimeString().slice(0, 8));
  return `${clock} ${styleText(colours[name], name.padEnd(5))} ${msg}\n`;
}
