import type { Run } from '../bench.ts';
import { Child } from '../child.ts';
import { now, sleep, within } from '../clock.ts';
import { Problem } from '../problem.ts';
import { type Outcome, Samples, showNumber } from '../report.ts';
import { BenchServer } from '../server.ts';
import { percentile } from '../statistics.ts';
import { keysFrom } from '../worker/mirror.ts';
import { startBare } from '../worker/providers.ts';
import { barsOf, jobsName, recoveryName, type Who, wishName } from './bars.ts';
import { fullPlan, type Plan, quickPlan } from './plan.ts';
import { Scene } from './scene.ts';
import { harmed, otherTypes } from './types.ts';
import { Viewer } from './viewer.ts';

/** How long a viewer of a new pair stays. */
const stayMs = 2_000;
const longestMs = 120_000;

export async function run({ quick, only, scope, progress }: Run): Promise<Outcome> {
  if (only.length > 0) throw new Problem('The isolation has no contenders to choose from: leave --only out.', 2);
  const plan = quick ? quickPlan : fullPlan;
  const server = await BenchServer.start(scope, progress);
  const { address: provider } = await startBare(scope);
  const scene = await Scene.build(server, scope, plan, provider);
  const file = new URL('./host.ts', import.meta.url);
  const { child, value } = await Child.open(scope, file, [scene.url, provider, JSON.stringify(plan)]);
  const house = new House(plan, scene, value as number);
  const samples = new Samples();
  const measure = async (name: 'quiet' | 'harm', seconds: number): Promise<void> => {
    const { times, jobsPerSecond } = await child.orFailure(house.measure(seconds));
    for (const who of ['new', 'connected'] as const) {
      for (const percentage of [50, 99])
        samples.add(wishName(who, percentage), name, 'ms', percentile(times[who], percentage));
    }
    samples.add(jobsName, name, 'jobs/s', jobsPerSecond);
    progress(
      `${name} · p99 ${showNumber(percentile(times.new, 99))} ms new, ${showNumber(percentile(times.connected, 99))} ms connected before · ${showNumber(jobsPerSecond)} jobs/s`,
    );
  };

  await child.orFailure(house.open());
  await child.orFailure(house.measure(plan.seconds.warmUp));
  await measure('quiet', plan.seconds.quiet);
  await scene.harm();
  await measure('harm', plan.seconds.harm);
  const recovery = await child.orFailure(house.recover());
  for (const of of harmed) {
    samples.add(recoveryName(of), 'harm', 'ms', recovery[of]);
    progress(`${recoveryName(of)} · ${showNumber(recovery[of])} ms`);
  }

  const figures = samples.figures();
  return { bars: barsOf(figures), figures, about: { server: await server.describe(), plan } };
}

/** The viewers of a run. */
class House {
  readonly #plan: Plan;
  readonly #scene: Scene;
  readonly #port: number;
  readonly #types: readonly string[];
  #stayers: readonly Viewer[] = [];
  #keys = 0;

  constructor(plan: Plan, scene: Scene, port: number) {
    this.#plan = plan;
    this.#scene = scene;
    this.#port = port;
    this.#types = otherTypes(plan);
  }

  /** Connects the viewers that stay. The first of them view pairs that are refreshed all the time. */
  async open(): Promise<void> {
    this.#stayers = Array.from({ length: this.#plan.stayers }, () => new Viewer(this.#port));
    await this.#scene.spread(this.#plan);
    const types = [...this.#types, ...harmed];
    const looks = types.map((dataType, place) => {
      const pairs = keysFrom(1, this.#plan.pairs).map((key) => [dataType, key] as const);
      return this.#stayers[place % this.#stayers.length]!.addAll(pairs);
    });
    await within(longestMs, Promise.all(looks), 'The viewers who stay have not all got their snapshots.');
  }

  async measure(seconds: number): Promise<{ times: Record<Who, number[]>; jobsPerSecond: number }> {
    const { wishesPerSecond, harmedPerSecond } = this.#plan;
    const from = await this.#scene.now();
    const times: Record<Who, number[]> = { new: [], connected: [] };
    const wishes: Promise<unknown>[] = [];
    const began = now();
    for (let turn = 0; turn < seconds * wishesPerSecond; turn++) {
      const due = began + (turn * 1000) / wishesPerSecond;
      // Random, so that it does not align with periodic work.
      await sleep(Math.max(0, due - now() + (Math.random() * 500) / wishesPerSecond));
      const dataType = this.#types[turn % this.#types.length]!;
      wishes.push(this.#come(dataType).then((ms) => times.new.push(ms)));
      const stayer = this.#stayers[turn % this.#stayers.length]!;
      wishes.push(this.#look(stayer, dataType).then((ms) => times.connected.push(ms)));
      if (turn % Math.round(wishesPerSecond / harmedPerSecond) === 0)
        for (const name of harmed) void this.#come(name).catch(() => {});
    }
    await within(longestMs, Promise.all(wishes), 'Viewers of other types have not got their snapshots.');
    const to = await this.#scene.now();
    const jobs = await this.#scene.planned(from, to);
    return { times, jobsPerSecond: jobs / ((now() - began) / 1000) };
  }

  /** Ends the faults; returns the milliseconds until each type works again. */
  async recover(): Promise<Record<(typeof harmed)[number], number>> {
    const snapshot = new Viewer(this.#port).add('locked', this.#newKey()).then(() => now());
    const since = await this.#scene.now();
    await this.#scene.release();
    const released = now();
    while (!(await this.#scene.isPlanned('hung', since))) {
      if (now() - released > longestMs) throw new Error('The hung type is not planned again.');
      await sleep(20);
    }
    const planned = now();
    return { hung: planned - released, locked: (await snapshot) - released };
  }

  /** A viewer requests a never-requested pair, and leaves. */
  async #come(dataType: string): Promise<number> {
    const viewer = new Viewer(this.#port);
    const ms = await viewer.add(dataType, this.#newKey());
    setTimeout(() => viewer.leave(), stayMs);
    return ms;
  }

  async #look(viewer: Viewer, dataType: string): Promise<number> {
    const key = this.#newKey();
    const ms = await viewer.add(dataType, key);
    setTimeout(() => viewer.drop(dataType, key), stayMs);
    return ms;
  }

  #newKey(): string {
    this.#keys += 1;
    return `N${this.#keys}`;
  }
}
