import type { GatewaySettings, GatewayPair, GatewayUser } from '../../config/index.ts';
import { PgfreshError, problemOf } from '../../errors/index.ts';
import { within } from '../../lifecycle/index.ts';

const patienceMs = 4_000;

/** Whether users may look at pairs, as the configuration decides. What it does not answer is not allowed. */
export class Permission {
  readonly #authorize: GatewaySettings['authorize'];

  constructor(authorize: GatewaySettings['authorize']) {
    this.#authorize = authorize;
  }

  /** Whether anybody is ever refused. */
  get isAsked(): boolean {
    return this.#authorize !== undefined;
  }

  /** Why he may not; nothing if he may. */
  async refusal(user: GatewayUser, pair: GatewayPair): Promise<PgfreshError | undefined> {
    if (!this.#authorize) return undefined;
    const words = `${pair.dataType} ${pair.key}`;
    try {
      const allowed: unknown = await within(patienceMs, this.#authorize(user, pair), () => {
        throw new Error(`authorize took longer than ${patienceMs / 1_000} s`);
      });
      if (allowed === true) return undefined;
      if (allowed === false) return new PgfreshError('PGF_LIVE_FORBIDDEN', { pair: words });
      return new PgfreshError('PGF_LIVE_UNDECIDED', {
        pair: words,
        problem: 'authorize returned neither true nor false',
      });
    } catch (error) {
      return new PgfreshError('PGF_LIVE_UNDECIDED', { pair: words, problem: problemOf(error) }, { cause: error });
    }
  }
}
