import { problemOf } from '../errors/index.ts';

/** Answers with a few words when all is well, and throws when it is not. */
export type HealthCheck = () => Promise<string>;

export interface HealthReport {
  readonly ready: boolean;
  readonly checks: readonly { name: string; ok: boolean; detail: string }[];
}

/** Whether this process can do its work now. */
export class Health {
  readonly #checks = new Map<string, HealthCheck>();

  add(name: string, check: HealthCheck): void {
    this.#checks.set(name, check);
  }

  async report(): Promise<HealthReport> {
    const checks = await Promise.all([...this.#checks].map(([name, check]) => judge(name, check)));
    return { ready: checks.every((check) => check.ok), checks };
  }
}

async function judge(name: string, check: HealthCheck): Promise<HealthReport['checks'][number]> {
  try {
    return { name, ok: true, detail: await within(2_000, check()) };
  } catch (error) {
    return { name, ok: false, detail: problemOf(error) };
  }
}

async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error(`no answer within ${ms} ms`)), ms);
  return Promise.race([work, late.promise]).finally(() => clearTimeout(timer));
}
