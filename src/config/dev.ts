import { z } from 'zod';
import { clientOptions } from './client-options.ts';
import { options, readDefinition } from './definition.ts';
import { hintFor, invalid, shown } from './invalid.ts';
import type { Source } from './source.ts';

export interface DevContext {
  /** The database, which is migrated; its data types are not registered yet. */
  readonly databaseUrl: string;
  /** Aborted when pgfresh stops, after the worker has. */
  readonly signal: AbortSignal;
}

/** What was started for `pgfresh dev`. */
export interface DevSupport {
  /** Where sources are in this run, by their names. They may be on this machine. */
  readonly baseUrls?: Readonly<Record<string, string>> | undefined;
  /** Further lines of what `pgfresh dev` prints when it is ready. */
  readonly notes?: Readonly<Record<string, string>> | undefined;
  /** Answers `/` and everything below `/dev/`. It is asked only by pages of its own, and by programs, on this machine. */
  readonly page?: ((request: Request) => Response | Promise<Response>) | undefined;
  /** Called once everything runs. */
  readonly ready?: (() => void | Promise<void>) | undefined;
  /** Ends what was started. Called after the worker has stopped and before the database does. */
  readonly stop?: (() => void | Promise<void>) | undefined;
}

/** Starts what `pgfresh dev` needs besides pgfresh, for instance a provider that costs nothing. */
export type Dev = (context: DevContext) => DevSupport | Promise<DevSupport>;

const isFunction = (value: unknown): boolean => typeof value === 'function';
const hook = z.custom<() => void | Promise<void>>(isFunction, 'expected a function');
const page = z.custom<(request: Request) => Response | Promise<Response>>(isFunction, 'expected a function');
const supportSchema = options({
  baseUrls: z.record(z.string(), clientOptions.baseUrl.unwrap()).default({}),
  notes: z.record(z.string(), z.string()).default({}),
  page: page.optional(),
  ready: hook.optional(),
  stop: hook.optional(),
}) satisfies z.ZodType<unknown, DevSupport>;

export function readDev(dev: unknown, file: string): Dev | undefined {
  if (dev === undefined || typeof dev === 'function') return dev as Dev | undefined;
  throw invalid(file, 'dev', `expected a function that starts something, got ${shown(dev)}`);
}

/** Checks what the function has returned, and moves the sources to where they are in this run. */
export function readDevSupport(
  value: unknown,
  sources: readonly Source[],
  file: string,
): { support: z.output<typeof supportSchema>; sources: readonly Source[] } {
  const support = readDefinition(supportSchema, value, { file, path: 'what dev returns' });
  const names = sources.map(({ name }) => name);
  for (const name of Object.keys(support.baseUrls)) {
    if (!names.includes(name))
      throw invalid(file, `what dev returns.baseUrls.${name}`, `there is no such source; ${hintFor(name, names)}`);
  }
  const moved = sources.map((source) => {
    const baseUrl = support.baseUrls[source.name];
    return baseUrl === undefined ? source : { ...source, baseUrl, allowPrivateAddresses: true };
  });
  return { support, sources: moved };
}
