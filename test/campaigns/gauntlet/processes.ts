import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { allowances } from './allowances.ts';
import type { VariantName } from './cast.ts';

const cli = fileURLToPath(new URL('../../../bin/pgfresh.js', import.meta.url));
const configFile = fileURLToPath(new URL('./pgfresh.config.ts', import.meta.url));
const keptLines = 200;

export interface ProcessPlan {
  readonly name: string;
  readonly roles: string;
  readonly url: string;
  readonly provider: string;
  readonly folder: string;
  readonly port: number;
}

interface LogLine {
  readonly level: number;
  readonly type: string;
  readonly msg: string;
  readonly code?: string;
}

/** One `pgfresh run`, from its start to its end. */
export class RunningProcess {
  readonly plan: ProcessPlan;
  readonly variant: VariantName;
  /** What its calls say. */
  readonly tag: string;
  readonly #child: ChildProcess;
  readonly ready: Promise<void>;
  readonly exit: Promise<string>;
  readonly lines: LogLine[] = [];
  readyAt: number | undefined;
  endAskedAt: number | undefined;
  exitedAt: number | undefined;

  constructor(plan: ProcessPlan, variant: VariantName, count: number, onLine: (line: LogLine) => void) {
    this.plan = plan;
    this.variant = variant;
    this.tag = `${plan.name}.${count}`;
    const { port, roles } = plan;
    this.#child = spawnCommand(plan, variant, this.tag, ['run', '--json', '--roles', roles], {
      PGFRESH_PORT: String(port),
      PGFRESH_WORKER_NAME: this.tag,
      // A few jobs keep it busy for a while.
      PGFRESH_WORKER_CONCURRENCY: '10',
    });
    // A campaign that breaks off leaves nothing running.
    const end = (): void => void this.#child.kill('SIGKILL');
    process.once('exit', end);
    this.exit = once(this.#child, 'close').then(([code, signal]) => {
      this.exitedAt = Date.now();
      process.off('exit', end);
      return String(code ?? signal);
    });
    const started = once(createInterface(this.#child.stdout!), 'line').then(() => void (this.readyAt = Date.now()));
    this.ready = Promise.race([started, this.exit.then(() => undefined)]);
    createInterface(this.#child.stderr!).on('line', (text) => {
      const line = lineOf(text);
      this.lines.push(line);
      if (this.lines.length > keptLines) this.lines.shift();
      onLine(line);
    });
  }

  /** Whether it ended, or failed to start, without being asked to end. */
  get problem(): string | undefined {
    if (this.endAskedAt !== undefined) {
      const late = this.exitedAt === undefined && Date.now() - this.endAskedAt > allowances.exit;
      return late ? `still runs ${allowances.exit / 1000} s after SIGTERM` : undefined;
    }
    if (this.exitedAt !== undefined) return this.readyAt === undefined ? 'did not start' : 'ended by itself';
    return undefined;
  }

  /** The end of its output, for debugging. */
  get lastWords(): string {
    return this.lines
      .slice(-4)
      .map(({ msg }) => msg.slice(0, 300))
      .join(' / ');
  }

  async stop(): Promise<void> {
    this.endAskedAt ??= Date.now();
    this.#child.kill('SIGTERM');
    const patience = setTimeout(() => this.#child.kill('SIGKILL'), 2 * allowances.exit);
    await this.exit;
    clearTimeout(patience);
  }

  async kill(): Promise<void> {
    this.endAskedAt ??= Date.now();
    this.#child.kill('SIGKILL');
    await this.exit;
  }
}

/** A `pgfresh` command with the configuration of a variant. */
function spawnCommand(
  { url, provider, folder }: ProcessPlan,
  variant: VariantName,
  tag: string,
  command: readonly string[],
  settings: Record<string, string> = {},
): ChildProcess {
  const clean = Object.entries(process.env).filter(([name]) => !/^(PGFRESH_|DATABASE_URL|VITEST|NODE_)/.test(name));
  return spawn(process.execPath, [cli, ...command, '--config', configFile], {
    cwd: folder,
    env: {
      ...Object.fromEntries(clean),
      DATABASE_URL: url,
      GAUNTLET: JSON.stringify({ provider, variant, tag }),
      PGFRESH_DATA_DIR: folder,
      PGFRESH_POOL_SIZE: '6',
      ...settings,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

export interface Deployment {
  readonly exitCode: string;
  readonly ms: number;
  readonly output: string;
}

/** Runs `pgfresh migrate`, which brings the registry to the configuration. */
export async function deploy(plan: ProcessPlan, variant: VariantName): Promise<Deployment> {
  const began = performance.now();
  const child = spawnCommand(plan, variant, 'deployment', ['migrate', '--json']);
  const end = (): void => void child.kill('SIGKILL');
  process.once('exit', end);
  const output: string[] = [];
  for (const stream of [child.stdout!, child.stderr!]) stream.on('data', (chunk) => void output.push(String(chunk)));
  const [code, signal] = await once(child, 'close');
  process.off('exit', end);
  return { exitCode: String(code ?? signal), ms: performance.now() - began, output: output.join('').slice(-1_000) };
}

function lineOf(text: string): LogLine {
  try {
    return JSON.parse(text) as LogLine;
  } catch {
    return { level: 50, type: 'text', msg: text };
  }
}

/** A port that is free now. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
