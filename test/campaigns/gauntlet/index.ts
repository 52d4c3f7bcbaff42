import { rm } from 'node:fs/promises';
import { setTimeout as wait } from 'node:timers/promises';
import { temporaryFolder } from '../../harness/folder.ts';
import type { Campaign } from '../campaign.ts';
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

/**
 * Real processes, a provider that misbehaves, viewers by SQL and on pages, and random operations that change the
 * configuration under them. Invariants are looked at all the time, after a quiet period, and at rest. A step is a minute.
 */
export const gauntlet: Campaign = {
  about: 'processes, provider, viewers and a configuration that changes under them (a step is a minute)',
  steps: 5,
  testSteps: 0,
  mustMeet: ['calls', 'operations'],
  async run({ url, seed, steps, intensity = 1, only, progress }) {
    const journal = new Journal((text) =>
      process.stderr.write(`${text}${text.startsWith('VIOLATION') ? `\n      seed ${seed}` : ''}\n`),
    );
    const folder = await temporaryFolder('gauntlet');
    const world = await World.open(url, folder, journal, seed);
    const run = new Run(world, { intensity, only, progress });
    try {
      await run.start();
      for (
        let left = steps * 60_000 - (Date.now() - run.began);
        left > 30_000;
        left = steps * 60_000 - (Date.now() - run.began)
      )
        await run.round(Math.min(left, roundMs));
    } finally {
      await run.stop();
      await world.close();
      await rm(folder, { recursive: true, force: true });
    }
    const { violations } = journal;
    if (violations.length > 0) {
      const list = [...Map.groupBy(violations, ({ invariant }) => invariant)].map(
        ([invariant, found]) => `  ${found.length} × ${invariant}: ${found[0]!.words}`,
      );
      throw new Error(`seed ${seed}: ${violations.length} violations\n${list.join('\n')}`);
    }
    const counts = journal.counts();
    return {
      calls: world.provider.calls.length,
      operations: Object.values(counts).reduce((sum, count) => sum + count, 0),
      ...counts,
    };
  },
};

interface RunOptions {
  readonly intensity: number;
  readonly only: string | undefined;
  readonly progress: (done: number) => void;
}

/** The loops of a campaign. */
class Run {
  readonly began = Date.now();
  readonly #world: World;
  readonly #options: RunOptions;
  readonly #continuous = continuous();
  readonly #underWay = new Map<Operation, Promise<void>>();
  readonly #loops: Promise<void>[] = [];
  #isStopped = false;
  #looks = 0;

  constructor(world: World, options: RunOptions) {
    this.#world = world;
    this.#options = options;
  }

  async start(): Promise<void> {
    const world = this.#world;
    world.provider.onCall = (call) => judgeCall(world, call);
    this.#loops.push(
      this.#every(500, () => world.measureLag()),
      this.#every(lookEveryMs, () => this.#lookAt(this.#continuous)),
      this.#every(1_000, () => world.sql.beatAll()),
      this.#every(bystanderEveryMs, () => this.#bystander()),
    );
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all([...this.#loops, ...this.#underWay.values()]);
  }

  /** Operations, then quiet, then rest. */
  async round(ms: number): Promise<void> {
    const world = this.#world;
    await this.#lookAround();
    const end = Date.now() + ms - quietMs - restMs;
    while (Date.now() < end) {
      this.#begin((end - Date.now()) / 1000);
      await wait((gapMs / this.#options.intensity) * (0.5 + world.random()));
    }
    await Promise.all(this.#underWay.values());
    this.#options.progress(Math.round((Date.now() - this.began) / 60_000));
    world.journal.note('heal', 'everything is as it was at the beginning');
    await heal(world);
    await wait(quietMs - 25_000);
    const quiet = whenQuiet();
    const quietEnd = Date.now() + 25_000;
    while (Date.now() < quietEnd) {
      await this.#lookAt(quiet);
      await wait(1_000);
    }
    world.journal.note('all leave', 'everyone');
    await world.sql.leaveAll();
    for (const page of world.pages) page.leaveAll();
    await wait(restMs);
    await this.#lookAt(atRest);
  }

  /** The people who are there from the beginning. */
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

  /** Someone looks at what nothing concerns: they must not notice what happens to the others. */
  async #bystander(): Promise<void> {
    const world = this.#world;
    const key = `look-${++this.#looks}`;
    const page = world.pageOf(this.#looks % 2 === 0 ? 'second' : 'edge');
    const began = Date.now();
    const seen = await page.firstLook(bystander.name, key, {
      snapshot: allowances.bystanderSnapshot,
      row: allowances.bystanderRow,
    });
    if (!world.wasWhole(began) || this.#isStopped) return;
    const limit = { snapshot: allowances.bystanderSnapshot + world.lag, row: allowances.bystanderRow + world.lag };
    for (const what of ['snapshot', 'row'] as const)
      if ((seen[what] ?? Infinity) > limit[what])
        world.journal.violated(
          `bystanders get their ${what}`,
          {},
          `page ${page.name} got no ${what} of ${bystander.name} ${key} within ${limit[what]} ms${seen[what] ? `, but after ${Math.round(seen[what])}` : ''}; under way: ${[...this.#underWay.keys()].map(({ name }) => name).join(', ')}`,
        );
  }

  async #every(ms: number, work: () => unknown): Promise<void> {
    while (!this.#isStopped) {
      await work();
      await wait(ms);
    }
  }
}
