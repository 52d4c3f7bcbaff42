import { problemOf } from '../errors/index.ts';
import { within } from '../lifecycle/index.ts';

/** Returns a short detail if healthy, and throws otherwise. */
export type HealthCheck = () => Promise<string>;

export interface HealthReport {
  readonly ready: boolean;
  readonly checks: readonly { name: string; ok: boolean; detail: string }[];
}

const timeoutMs = 2_000;

/** Whether this process can do its work now. */
export class Health {
  readonly #checks = new Map<string, HealthCheck>();

  add(name: string, check: HealthCheck): void {
    this.#checks.set(name, check);
  }

  async report(): Promise<HealthReport> {
    const checks = await Promise.all([...this.#checks].map(([name, check]) => runCheck(name, check)));
    return { ready: checks.every((check) => check.ok), checks };
  }
}

async function runCheck(name: string, check: HealthCheck): Promise<HealthReport['checks'][number]> {
  try {
    const detail = await within(timeoutMs, check(), () => {
      throw new Error(`no answer within ${timeoutMs} ms`);
    });
    return { name, ok: true, detail };
  } catch (error) {
    return { name, ok: false, detail: problemOf(error) };
  }
}
