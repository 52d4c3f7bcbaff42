import { cpus, totalmem } from 'node:os';
import { parseArgs } from 'node:util';
import { now } from './clock.ts';
import { allOk, jsonLine, table } from './report.ts';
import type { Bench } from './bench.ts';
import { Scope } from './scope.ts';
import { Problem } from './problem.ts';

const benches: Record<string, Bench> = {
  queue: {
    about: 'enqueue, drain, latency and claim cost, beside pg-boss, graphile-worker and a hand-written minimum',
    load: () => import('./queue/index.ts'),
  },
  planner: {
    about: 'tick, sweep, heartbeats and first looks, beside a loop key by key and a bare insert',
    load: () => import('./planner/index.ts'),
  },
  worker: {
    about: 'calls under a limit, cold pairs, refreshes a second beside pg-boss and graphile-worker, and the heap',
    load: () => import('./worker/index.ts'),
  },
  schedule: {
    about: 'how late 500 jobs of 10,000 start that are due in the same second, and what an idle minute costs',
    load: () => import('./schedule/index.ts'),
  },
  gateway: {
    about: 'cold pairs, one change to 10,000 viewers and the memory of 15,000 beside bare ws, joins and leaves',
    load: () => import('./gateway/index.ts'),
  },
  isolation: {
    about: 'what viewers and jobs of other types notice while the gate of one type hangs and a table is locked',
    load: () => import('./isolation/index.ts'),
  },
};

const help = `Usage: npm run bench -- <name> [options]

Benches:
${Object.entries(benches)
  .map(([name, { about }]) => `  ${name.padEnd(10)} ${about}`)
  .join('\n')}

Options:
  --json                print one JSON object as the last line instead of the table
  --quick               the same bars on smaller sizes and windows, in less than a minute
  --only <contenders>   only these, by comma; bars that need another one are left out
  --help                show this

Environment:
  BENCH_DATABASE_URL    a server to measure on, as a superuser; without it an embedded one is started
`;

const scope = new Scope();
let interrupted = false;
let ending = false;

// The first signal stops everything in order; the next one is for who cannot wait.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(signal, () => {
    if (interrupted) process.exit(130);
    interrupted = true;
    process.stderr.write('bench: stopping what was started\n');
    void scope.close().then(() => process.exit(130));
  });
}

// A peer that loses its database to an interrupt fails in ways that it does not let us catch.
process.on('uncaughtException', (error) => void (interrupted || end(error)));

try {
  await end(undefined, await main());
} catch (error) {
  if (!interrupted) await end(error);
}

async function end(error: unknown, code = error instanceof Problem ? error.exit : 1): Promise<void> {
  if (ending) return;
  ending = true;
  if (error !== undefined) process.stderr.write(`bench: ${describe(error)}\n`);
  await scope.close();
  if (!interrupted) process.exit(code);
}

async function main(): Promise<number> {
  const { values, positionals } = readArguments();
  if (values.help) {
    process.stdout.write(help);
    return 0;
  }
  const name = positionals[0];
  if (name === undefined) throw new Problem(`Name a bench: ${names()}.\n\n${help}`, 2);
  const bench = Object.hasOwn(benches, name) ? benches[name] : undefined;
  if (!bench) throw new Problem(`There is no bench "${name}". Choose from: ${names()}.`, 2);

  const began = now();
  const { run } = await bench.load();
  const measured = await run({
    quick: values.quick,
    only: values.only?.split(',').filter(Boolean) ?? [],
    scope,
    progress: (line) => process.stderr.write(`[${((now() - began) / 1000).toFixed(1).padStart(6)} s] ${line}\n`),
  });
  const outcome = {
    ...measured,
    about: { ...measured.about, quick: values.quick, ...machine(), seconds: elapsed(began) },
  };
  process.stdout.write(`${values.json ? jsonLine(name, outcome) : table(name, outcome)}\n`);
  return allOk(outcome.bars) ? 0 : 1;
}

function readArguments() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        json: { type: 'boolean', default: false },
        quick: { type: 'boolean', default: false },
        only: { type: 'string' },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
  } catch (error) {
    const [sentence] = (error as Error).message.split('. ', 1);
    throw new Problem(`${sentence}. "npm run bench -- --help" shows the options.`, 2, { cause: error });
  }
}

function names(): string {
  return Object.keys(benches).join(', ');
}

function machine(): Record<string, unknown> {
  const cores = cpus();
  return {
    machine: {
      cores: cores.length,
      model: cores[0]?.model,
      memoryGb: Math.round(totalmem() / 2 ** 30),
      node: process.version,
    },
  };
}

function elapsed(began: number): number {
  return Math.round((now() - began) / 1000);
}

function describe(error: unknown): string {
  if (error instanceof Problem) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
