import { z } from 'zod';

/** What can be the matter with the provider, each with the faults that make it so. Of those that fit a call, the last counts. */
const faultsOf = {
  none: [],
  down: [{ kind: 'down' }],
  slow: [{ kind: 'slow' }],
  lying: [{ kind: 'wrong_symbol' }, { kind: 'price_huge', route: 'quote' }],
  stuck: [{ kind: 'stale_cache' }],
  locked: [{ kind: 'unauthorized' }],
  changed: [{ kind: 'renamed_field' }],
  gone: [{ kind: 'no_content' }],
} as const satisfies Record<string, readonly object[]>;

export type Trouble = keyof typeof faultsOf | 'other';

const orderedSchema = z.object({ ordered: z.array(z.object({ kind: z.string(), route: z.string().optional() })) });
const wishSchema = z.strictObject({ trouble: z.enum(Object.keys(faultsOf) as [keyof typeof faultsOf]) });

/** Breaks the provider and mends it, through the routes by which it is told to. */
export class TroubleMaker {
  readonly #faults: string;

  constructor(providerUrl: string) {
    this.#faults = `${providerUrl}/admin/faults`;
  }

  /** `other` was set by hand. */
  async now(): Promise<Trouble> {
    const { ordered } = orderedSchema.parse(await (await fetch(this.#faults)).json());
    const isSame = (faults: readonly { kind: string }[]): boolean =>
      faults.map(({ kind }) => kind).join() === ordered.map(({ kind }) => kind).join();
    const found = Object.entries(faultsOf).find(([, faults]) => isSame(faults));
    return (found?.[0] as Trouble | undefined) ?? 'other';
  }

  /** Does what a body such as {"trouble":"down"} says, or tells what is wrong with it. */
  async make(body: unknown): Promise<{ trouble: Trouble } | { problem: string }> {
    const wish = wishSchema.safeParse(body);
    if (!wish.success) {
      const names = Object.keys(faultsOf).join(', ');
      return { problem: `Expected {"trouble":"…"} with one of ${names}, got ${JSON.stringify(body).slice(0, 100)}.` };
    }
    await fetch(this.#faults, { method: 'DELETE' });
    for (const fault of faultsOf[wish.data.trouble])
      await fetch(this.#faults, { method: 'POST', body: JSON.stringify(fault) });
    return wish.data;
  }
}
