/** A process that finds slots for the questions on its input, in whatever time zone it was started. */
import { text } from 'node:stream/consumers';
import { nextSlots, parseCron } from '../../src/schedule/index.ts';

const questions = JSON.parse(await text(process.stdin)) as [cron: string, zone: string, after: number, count: number][];
const answers = questions.map(([cron, zone, after, count]) =>
  nextSlots(parseCron(cron), zone, new Date(after), count).map((slot) => slot.getTime()),
);
process.stdout.write(JSON.stringify({ zone: new Date(0).toString(), answers }));
