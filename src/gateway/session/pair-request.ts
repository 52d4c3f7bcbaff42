import type { WantedPair } from '#protocol';
import { within } from '../../lifecycle/index.ts';
import type { ResolvedPair } from '../pairs/watched-pair.ts';

/** A pair that a client requested and that is not answered yet. */
export class PairRequest {
  readonly pair: WantedPair;
  /** Resolves once there is a result. */
  readonly settled: Promise<void>;
  /** The pair, or why it is refused. */
  result: ResolvedPair | Error | undefined;

  constructor(pair: WantedPair, admission: Promise<ResolvedPair>) {
    this.pair = pair;
    this.settled = admission.then(
      (resolved) => void (this.result = resolved),
      (error: unknown) => void (this.result = error as Error),
    );
  }

  get dataType(): string {
    return this.pair[0];
  }
}

/** Resolves when all requests are settled, or when the time is over. */
export async function settledWithin(requests: readonly PairRequest[], ms: number): Promise<void> {
  await within(ms, Promise.all(requests.map(({ settled }) => settled)));
}
