import type pg from 'pg';
import type { Run } from '../bench.ts';
import { Problem } from '../problem.ts';
import { type Outcome, Samples, showNumber } from '../report.ts';
import type { Scope } from '../scope.ts';
import { BenchServer, connect } from '../server.ts';
import { median } from '../statistics.ts';
import { barsOf, coldName, heartbeatName, sizeName } from './bars.ts';
import { timeColdPairs } from './cold-pair.ts';
import { heartbeatShare } from './heartbeat.ts';
import { bareInsert, loop, type Pass, sweep, tick, timeIdleTicks, timePass } from './passes.ts';
import { fullPlan, type Plan, quickPlan, type Size } from './plan.ts';
import { buildBase, buildScene, type Scene } from './scene.ts';

export async function run({ quick, only, scope, progress }: Run): Promise<Outcome> {
  if (only.length > 0) throw new Problem('The planner has no contenders to choose from: leave --only out.', 2);
  const plan = quick ? quickPlan : fullPlan;
  const server = await BenchServer.start(scope, progress);
  progress(`${plan.types} data types of ${showNumber(plan.rowsAType)} rows`);
  const base = await buildBase(server, scope, plan);

  const samples = new Samples();
  const scenes: Scene[] = [];
  let temporaryFiles = 0;
  for (const size of plan.sizes) {
    const scene = await buildScene(server, scope, base, plan, size.subscriptions);
    scenes.push(scene);
    progress(
      `${sizeName(size.subscriptions)} to ${showNumber(scene.pairs)} pairs, ${showNumber(scene.stale)} of them stale`,
    );
    temporaryFiles += await measureSize(server, scope, scene, size, plan, samples, progress);
  }
  await measureClients(server, scope, scenes.at(-1)!, plan, samples, progress);

  const figures = samples.figures();
  return {
    bars: barsOf(figures, scenes, plan, temporaryFiles),
    figures,
    about: {
      server: await server.describe(),
      sizes: scenes.map(({ subscriptions, pairs, stale }) => ({ subscriptions, pairs, stale })),
    },
  };
}

/** Times every pass in clones of the scene. Returns how many temporary files ours created. */
async function measureSize(
  server: BenchServer,
  scope: Scope,
  scene: Scene,
  { subscriptions, rounds, loops }: Size,
  plan: Plan,
  samples: Samples,
  progress: (line: string) => void,
): Promise<number> {
  const name = sizeName(subscriptions);
  let temporaryFiles = 0;
  let expected: readonly string[] | undefined;
  const time = async (pass: Pass, client: pg.Client) => {
    const { ms, queued } = await timePass(pass, client);
    requireSame(`${pass.name} at ${name}`, queued, (expected ??= queued));
    samples.add(name, pass.name, 'ms', ms);
    return `${pass.name} ${showNumber(ms)} ms`;
  };

  for (let round = 0; round < rounds; round++) {
    const found: string[] = [];
    await inClone(server, scope, scene, async (client) => {
      // None of them sees what another one has queued: the bare insert and the loop have tables of their own.
      found.push(await time(bareInsert, client), await time(tick, client));
      const idle = median(await timeIdleTicks(client, plan.idleTicks));
      samples.add(name, 'idle tick', 'ms', idle);
      found.push(`with nothing due ${showNumber(idle)} ms`);
      temporaryFiles += await temporaryFilesOf(client);
    });
    await inClone(server, scope, scene, async (client) => {
      found.push(await time(sweep, client));
      temporaryFiles += await temporaryFilesOf(client);
      if (round < loops) found.push(await time(loop, client));
    });
    progress(`${round + 1}/${rounds} ${name} · ${found.join(' · ')}`);
  }
  return temporaryFiles;
}

async function measureClients(
  server: BenchServer,
  scope: Scope,
  scene: Scene,
  plan: Plan,
  samples: Samples,
  progress: (line: string) => void,
): Promise<void> {
  const { clients } = plan.heartbeat;
  const share = await scope.nest(async (inner) =>
    heartbeatShare(server, inner, await scene.clone(inner), plan.heartbeat),
  );
  samples.add(heartbeatName(clients), 'pgfresh', '% of a core', share);
  progress(`${heartbeatName(clients)} · ${showNumber(share)} % of a core`);
  const times = await scope.nest(async (inner) => timeColdPairs(inner, await scene.clone(inner), plan));
  for (const ms of times) samples.add(coldName, 'pgfresh', 'ms', ms);
  progress(`${coldName} · ${showNumber(median(times))} ms`);
}

function inClone(
  server: BenchServer,
  scope: Scope,
  scene: Scene,
  work: (client: pg.Client) => Promise<void>,
): Promise<void> {
  return scope.nest(async (inner) => {
    // Before the copy: its pages are newer than the checkpoint then, as most pages are that a planner writes every second.
    await server.settle();
    const client = await connect(await scene.clone(inner), inner);
    await readPages(client);
    await work(client);
  });
}

// The copy leaves in memory whatever fits last. Each measure starts with what a server that runs for longer has there.
async function readPages(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `select oid::regclass::text as name from pg_class
     where relkind = 'r' and relnamespace::regnamespace::text in ('public', 'pgfresh', 'pgfresh_engine', 'reference')`,
  );
  // The rows, and then the index in which they are counted.
  for (const way of ['on', 'off']) {
    await client.query(`set enable_seqscan = ${way}`);
    for (const { name } of rows) await client.query(`select count(*) from ${name}`);
  }
  await client.query('reset enable_seqscan');
}

async function temporaryFilesOf(client: pg.Client): Promise<number> {
  await client.query('select pg_stat_force_next_flush()');
  const { rows } = await client.query<{ n: number }>(
    'select temp_files::int as n from pg_stat_database where datname = current_database()',
  );
  return rows[0]!.n;
}

function requireSame(who: string, queued: readonly string[], expected: readonly string[]): void {
  if (queued.length === expected.length && queued.every((job, place) => job === expected[place])) return;
  const has = new Set(queued);
  const wanted = new Set(expected);
  const first = (jobs: readonly string[]) => jobs.slice(0, 3).join(', ') || 'none';
  throw new Error(
    `${who} queued ${queued.length} jobs, expected ${expected.length}. ` +
      `Missing: ${first(expected.filter((job) => !has.has(job)))}. Too many: ${first(queued.filter((job) => !wanted.has(job)))}.`,
  );
}
