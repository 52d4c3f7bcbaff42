import type { WantedPair } from '#protocol';
import { within } from '../../lifecycle/index.ts';
import type { NamedPair } from '../pairs/watched-pair.ts';

/** A pair that a client has asked for and that is not answered yet. */
export class Wish {
  readonly pair: WantedPair;
  /** Settles when it is known what came of it. */
  readonly settled: Promise<void>;
  /** The pair, or why it is refused. */
  found: NamedPair | Error | undefined;

  constructor(pair: WantedPair, admitted: Promise<NamedPair>) {
    this.pair = pair;
    this.settled = admitted.then(
      (named) => void (this.found = named),
      (error: unknown) => void (this.found = error as Error),
    );
  }

  get dataType(): string {
    return this.pair[0];
  }
}

/** Settles when all of them are settled, or when the time is over. */
export async function settledWithin(wishes: readonly Wish[], ms: number): Promise<void> {
  await within(ms, Promise.all(wishes.map(({ settled }) => settled)));
}
