/** Runs a campaign with its full counts: `npm run campaign -- <name> [--seed N] [--steps N | --minutes N]`. */
import { rm } from 'node:fs/promises';
import { constants } from 'node:os';
import { parseArgs } from 'node:util';
import { Database, EmbeddedServer, migrate, readSqlFiles } from '../src/database/index.ts';
import { Events } from '../src/events/index.ts';
import { CampaignFailure, unitOf, type Campaign } from '../test/campaigns/campaign.ts';
import { campaigns } from '../test/campaigns/index.ts';
import { temporaryFolder } from '../test/harness/folder.ts';

const usage = `Usage: npm run campaign -- <name> [options]

Runs a campaign on an embedded PostgreSQL of its own, which is removed afterwards.

Campaigns:
${Object.entries(campaigns)
  .map(
    ([name, campaign]) =>
      `  ${name.padEnd(14)}${campaign.about} (${campaign.steps.toLocaleString('en')} ${unitOf(campaign)})`,
  )
  .join('\n')}

Options:
  --seed N        what chances are drawn from (default: 1)
  --steps N       how many steps, instead of those in the list
  --minutes N     how long, of a campaign that goes by time
  --intensity N   how much happens at a time, where the campaign can do more or less (default: 1)
  --only words    only operations whose name has one of these words, separated by commas, where it has operations
  -h, --help      show this help

Progress and violations go to stderr; at the end the counts go to stdout, as JSON.

Exit codes:
  0  everything held
  1  something did not hold, or the campaign failed
  2  the command line is wrong`;

class UsageError extends Error {}

interface Order {
  readonly name: string;
  readonly campaign: Campaign;
  readonly seed: number;
  readonly steps: number;
  readonly intensity: number;
  readonly only: string | undefined;
}

async function main(): Promise<number> {
  try {
    const order = readOrder();
    if (order !== undefined) return await run(order);
    console.log(usage);
    return 0;
  } catch (error) {
    if (error instanceof UsageError) {
      console.error(`${error.message}\nSee npm run campaign -- --help`);
      return 2;
    }
    // A failed invariant's message is enough; for other errors, the stack helps.
    console.error(error instanceof CampaignFailure ? error.message : error);
    return 1;
  }
}

/** Undefined if only help was requested. */
function readOrder(): Order | undefined {
  const { positionals, values } = readArguments();
  if (values.help) return undefined;
  const [name, ...others] = positionals;
  if (name === undefined) throw new UsageError('Expected the name of a campaign.');
  const campaign = campaigns[name];
  if (!campaign)
    throw new UsageError(`There is no campaign "${name}". The known ones: ${Object.keys(campaigns).join(', ')}.`);
  if (others.length > 0) throw new UsageError(`Expected one campaign, got also ${others.join(' ')}.`);
  const unit = unitOf(campaign);
  const other = unit === 'minutes' ? 'steps' : 'minutes';
  if (values[other] !== undefined) throw new UsageError(`${name} goes by --${unit}, not by --${other}.`);
  return {
    name,
    campaign,
    seed: numberOf('seed', values.seed, 0),
    steps: numberOf(unit, values[unit] ?? String(campaign.steps), campaign.fewest ?? 1),
    intensity: numberOf('intensity', values.intensity, 0.01),
    only: values.only,
  };
}

function readArguments() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        seed: { type: 'string', default: '1' },
        steps: { type: 'string' },
        minutes: { type: 'string' },
        intensity: { type: 'string', default: '1' },
        only: { type: 'string' },
        help: { type: 'boolean', short: 'h' },
      },
    });
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function numberOf(option: string, text: string, least: number): number {
  const number = text.trim() === '' ? Number.NaN : Number(text);
  if (!Number.isFinite(number) || number < least)
    throw new UsageError(`--${option} must be a number of at least ${least}, got "${text}".`);
  return number;
}

async function run({ name, campaign, seed, steps, intensity, only }: Order): Promise<number> {
  const unit = unitOf(campaign);
  const started = performance.now();
  const seconds = (): number => Math.round((performance.now() - started) / 1000);
  const progress = (done: number, detail?: string): void =>
    console.error(`${name} ${seconds()} s: ${done} of ${steps} ${unit}${detail === undefined ? '' : `, ${detail}`}`);
  const interruption = new Interruption(name);
  const { signal } = interruption;
  const tally = await withServer(async (url) => {
    const ran = campaign.run({ url, seed, steps, intensity, only, progress, signal });
    const ended = await Promise.race([ran, interruption.occurred]);
    // A campaign that ignores the signal loses its database.
    if (ended === undefined && campaign.stopsBySignal) await ran.catch(() => {});
    return ended;
  });
  interruption.ignore();
  // Open handles must not keep the process alive.
  if (tally === undefined) process.exit(128 + constants.signals[signal.reason as NodeJS.Signals]);
  console.log(JSON.stringify({ campaign: name, seed, [unit]: steps, seconds: seconds(), ...tally }));
  return 0;
}

/** Runs on a migrated server that is removed afterwards. */
async function withServer<Result>(work: (url: string) => Promise<Result>): Promise<Result> {
  const dataDir = await temporaryFolder('campaign');
  const events = new Events();
  const server = new EmbeddedServer({ dataDir, events, fsync: false });
  try {
    await server.start();
    const database = new Database({ url: server.url, events, applicationName: 'pgfresh campaign' });
    await migrate(database, { files: await readSqlFiles(), events });
    await database.close();
    return await work(server.url);
  } finally {
    await server.stop();
    await rm(dataDir, { recursive: true, force: true });
  }
}

/** Stops a campaign on the first signal; the second one ends the process. */
class Interruption {
  static readonly #signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  readonly #controller = new AbortController();
  readonly #listener: (signal: NodeJS.Signals) => void;
  readonly occurred: Promise<undefined>;

  constructor(name: string) {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    this.occurred = promise;
    this.#listener = (signal) => {
      console.error(`${name} got ${signal} and cleans up`);
      this.#controller.abort(signal);
      resolve(undefined);
    };
    for (const signal of Interruption.#signals) process.once(signal, this.#listener);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  ignore(): void {
    for (const signal of Interruption.#signals) process.off(signal, this.#listener);
  }
}

process.exitCode = await main();
