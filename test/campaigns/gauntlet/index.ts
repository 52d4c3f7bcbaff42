import { rm } from 'node:fs/promises';
import { setTimeout as wait } from 'node:timers/promises';
import { temporaryFolder } from '../../harness/folder.ts';
import { CampaignFailure, type Campaign } from '../campaign.ts';
import { allowances } from './allowances.ts';
import { bystander } from './cast.ts';
import { atRest, continuous, judgeCall, whenQuiet, type Invariant } from './invariants/index.ts';
import { Journal } from './journal.ts';
import { draw, heal, type Operation } from './operations/index.ts';
import { World } from './world.ts';

/** After the operations everything is healed and viewed for so long: a sweep, the retries' waits, the client's minute. */
const quietMs = 85_000;
/** Then all leave: 10 s at the gateway, 15 s warm, a tick, what runs. */
const restMs = 40_000;
/** The longest round; a longer campaign has several. */
const roundMs = 360_000;
/** Time between two operations, at intensity 1. */
const gapMs = 1_500;
const lookEveryMs = 2_000;
const bystanderEveryMs = 5_000;
const progressEveryMs = 30_000;

/**
 * Real processes, a provider that misbehaves, viewers by SQL and on pages, and random operations that change the
 * configuration under them. Invariants are looked at all the time, after a quiet period, and at rest.
 */
export const gauntlet: Campaign = {
  about: 'processes, provider, viewers and a configuration that changes under them',
  steps: 5,
  goesByTime: true,
  fewest: 3,
  testSteps: 0,
  stopsBySignal: true,
  mustMeet: ['calls', 'operations'],
  async run({ url, seed, steps, intensity = 1, only, signal, progress }) {
    const journal = new Journal((text) =>
      process.stderr.write(`${text}${text.startsWith('VIOLATION') ? `\n      seed ${seed}` : ''}\n`),
    );
    const own = await temporaryFolder('gauntlet');
    const world = await World.open(url, own, journal, seed);
    const run = new Run(world, { steps, intensity, only, progress });
    try {
      run.start();
      await Promise.race([run.rounds(), aborted(signal)]);
      if (!signal?.aborted) await run.stop();
    } finally {
      journal.close();
      await world.close();
      await rm(own, { recursive: true, force: true });
    }
    const { violations } = journal;
    if (violations.length > 0) {
      const list = [...Map.groupBy(violations, ({ invariant }) => invariant)].map(
        ([invariant, found]) => `  ${found.length} × ${invariant}: ${found[0]!.words}`,
      );
      throw new CampaignFailure(
        `gauntlet with seed ${seed}: ${violations.length} violations\n${list.join('\n')}\n` +
          `Once more: npm run campaign -- gauntlet --seed ${seed} --minutes ${steps}`,
      );
    }
    const counts = journal.counts();
    return {
      violations: 0,
      calls: world.provider.calls.length,
      operations: Object.values(counts).reduce((sum, count) => sum + count, 0),
      stallMs: Math.round(world.stall.worst),
      ...counts,
    };
  },
};

async function aborted(signal: AbortSignal | undefined): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  signal?.addEventListener('abort', () => resolve());
  if (!signal?.aborted) await promise;
}

interface RunOptions {
  /** How many minutes. */
  readonly steps: number;
  readonly intensity: number;
  readonly only: string | undefined;
  readonly progress: (done: number, detail: string) => void;
}

/** The loops of a campaign. */
class Run {
  readonly #began = Date.now();
  readonly #world: World;
  readonly #options: RunOptions;
  readonly #continuous = continuous();
  readonly #underWay = new Map<Operation, Promise<void>>();
  readonly #loops: Promise<void>[] = [];
  readonly #stop = new AbortController();
  #looks = 0;
  #phase = 'operations';

  constructor(world: World, options: RunOptions) {
    this.#world = world;
    this.#options = options;
  }

  start(): void {
    const world = this.#world;
    world.provider.onCall = (call) => judgeCall(world, call);
    this.#loops.push(
      this.#every(0, () => world.stall.measure()),
      this.#every(progressEveryMs, () => this.#tell()),
      this.#every(lookEveryMs, () => this.#lookAt(this.#continuous)),
      this.#every(1_000, () => world.sql.beatAll()),
      this.#every(bystanderEveryMs, () => this.#bystander()),
    );
    // If the campaign is aborted, these are not awaited.
    for (const loop of this.#loops) loop.catch(() => {});
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all([...this.#loops, ...this.#underWay.values()]);
  }

  async rounds(): Promise<void> {
    const ms = this.#options.steps * 60_000;
    const count = Math.ceil(ms / roundMs);
    for (let n = 0; n < count; n++) await this.#round(ms / count);
  }

  /** Operations, then quiet, then rest. */
  async #round(ms: number): Promise<void> {
    const world = this.#world;
    this.#phase = 'operations';
    await this.#lookAround();
    const end = Date.now() + ms - quietMs - restMs;
    while (Date.now() < end) {
      this.#begin((end - Date.now()) / 1000);
      await wait((gapMs / this.#options.intensity) * (0.5 + world.random()));
    }
    await Promise.all(this.#underWay.values());
    this.#phase = 'quiet';
    world.journal.note('heal', 'everything is as it was at the beginning');
    await heal(world);
    await wait(quietMs - 25_000);
    const quiet = whenQuiet();
    const quietEnd = Date.now() + 25_000;
    while (Date.now() < quietEnd) {
      await this.#lookAt(quiet);
      await wait(1_000);
    }
    this.#phase = 'rest';
    world.journal.note('all leave', 'everyone');
    await world.sql.leaveAll();
    for (const page of world.pages) page.leaveAll();
    await wait(restMs);
    await this.#lookAt(atRest);
  }

  #tell(): void {
    const { journal, provider, lag } = this.#world;
    const operations = Object.values(journal.counts()).reduce((sum, count) => sum + count, 0);
    const found = journal.violations.length === 1 ? '1 violation' : `${journal.violations.length} violations`;
    this.#options.progress(
      Math.floor((Date.now() - this.#began) / 6_000) / 10,
      `${this.#phase}: ${operations} operations, ${provider.calls.length} calls, ${found}, stalled for up to ${Math.round(lag)} ms`,
    );
  }

  /** The initial viewers. */
  async #lookAround(): Promise<void> {
    const { sql, pages } = this.#world;
    const looks = [
      ['quote', 'S1'],
      ['quote', 'S2'],
      ['rates', 'r1'],
      ['news', 'n1'],
      ['street', 'LANE'],
      ['detour', 'way'],
      ['extra', 'e1'],
    ];
    for (const [type = '', key = ''] of looks) await sql.look('anchor', type, key);
    for (const [n, page] of pages.entries()) {
      page.look('quote', `S${n + 1}`);
      page.look('rates', `r${n + 1}`);
      page.look('news', `n${n + 1}`);
    }
    pages[0]!.look('street', 'straße');
  }

  #begin(secondsLeft: number): void {
    const { only } = this.#options;
    const busy = [...this.#underWay.keys()];
    const isFree = (operation: Operation): boolean =>
      (only === undefined || only.split(',').some((words) => operation.name.includes(words))) &&
      busy.every((other) => other !== operation && (other.alone === undefined || other.alone !== operation.alone));
    const operation = draw(this.#world, secondsLeft, isFree);
    if (!operation) return;
    const done = operation
      .run(this.#world)
      .catch((error: unknown) => this.#failed(operation, error as Error))
      .finally(() => this.#underWay.delete(operation));
    this.#underWay.set(operation, done);
  }

  #failed({ name }: Operation, { message }: Error): void {
    // What another operation has taken away or locked for a while.
    if (/^PGF_(TYPE_UNKNOWN|KEY_UNKNOWN|REGISTRY_INVALID)|lock timeout/.test(message)) return;
    this.#world.journal.violated('operators are not refused', {}, `${name}: ${message}`);
  }

  async #lookAt(invariants: readonly Invariant[]): Promise<void> {
    for (const invariant of invariants) {
      try {
        await invariant.look(this.#world);
      } catch (error) {
        this.#world.journal.violated(
          'the invariants can be looked at',
          {},
          `${invariant.name}: ${(error as Error).message}`,
        );
      }
    }
  }

  /** A bystander's viewer must not notice what happens to others. */
  async #bystander(): Promise<void> {
    const world = this.#world;
    const key = `look-${++this.#looks}`;
    const page = world.pageOf(this.#looks % 2 === 0 ? 'second' : 'edge');
    const began = Date.now();
    const seen = await page.firstLook(bystander.name, key, {
      snapshot: allowances.bystanderSnapshot,
      row: allowances.bystanderRow,
    });
    if (!world.wasWhole(began) || this.#stop.signal.aborted) return;
    const limit = { snapshot: allowances.bystanderSnapshot + world.lag, row: allowances.bystanderRow + world.lag };
    for (const what of ['snapshot', 'row'] as const)
      if ((seen[what] ?? Infinity) > limit[what])
        world.journal.violated(
          `bystanders get their ${what}`,
          {},
          `page ${page.name} got no ${what} of ${bystander.name} ${key} within ${Math.round(limit[what])} ms${seen[what] ? `, but after ${Math.round(seen[what])}` : ''}; under way: ${[...this.#underWay.keys()].map(({ name }) => name).join(', ')}`,
        );
  }

  async #every(ms: number, work: () => unknown): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await work();
      await wait(ms, undefined, { signal }).catch(() => {});
    }
  }
}
