/** Runs a campaign with its full counts: `npm run campaign -- <name> [--seed N] [--steps N | --minutes N]`. */
import { rm } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { Database, EmbeddedServer, migrate, readSqlFiles } from '../src/database/index.ts';
import { Events } from '../src/events/index.ts';
import { campaigns } from '../test/campaigns/index.ts';
import { temporaryFolder } from '../test/harness/folder.ts';

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    seed: { type: 'string', default: '1' },
    steps: { type: 'string' },
    // The steps of a campaign that goes by time.
    minutes: { type: 'string' },
    intensity: { type: 'string', default: '1' },
    only: { type: 'string' },
    help: { type: 'boolean', short: 'h' },
  },
});
const [name = ''] = positionals;
const campaign = campaigns[name];

if (!campaign) {
  const list = Object.entries(campaigns).map(
    ([known, { about, steps }]) => `  ${known.padEnd(16)} ${about} (${steps.toLocaleString('en')} steps)`,
  );
  console.log(
    `Usage: npm run campaign -- <name> [--seed N] [--steps N | --minutes N] [--intensity N] [--only operation]\n\n${list.join('\n')}`,
  );
  process.exitCode = values.help ? 0 : 2;
} else {
  const dataDir = await temporaryFolder('campaign');
  const events = new Events();
  const server = new EmbeddedServer({ dataDir, events, fsync: false });
  try {
    await server.start();
    const database = new Database({ url: server.url, events, applicationName: 'pgfresh campaign' });
    await migrate(database, { files: await readSqlFiles(), events });
    await database.close();
    const steps = Number(values.minutes ?? values.steps ?? campaign.steps);
    const started = performance.now();
    const progress = (done: number): void =>
      console.error(`${done} of ${steps} steps, ${Math.round((performance.now() - started) / 1000)} s`);
    const { seed, intensity, only } = values;
    const options = { seed: Number(seed), intensity: Number(intensity), only };
    const tally = await campaign.run({ url: server.url, steps, progress, ...options });
    console.log(
      JSON.stringify({
        campaign: name,
        seed: Number(values.seed),
        steps,
        ms: Math.round(performance.now() - started),
        ...tally,
      }),
    );
  } finally {
    await server.stop();
    await rm(dataDir, { recursive: true, force: true });
  }
}
