import type { GatewaySettings, GatewayPair, GatewayUser } from '../../config/index.ts';
import { PgfreshError, problemOf } from '../../errors/index.ts';
import { within } from '../../lifecycle/index.ts';

const timeoutMs = 4_000;

/** Asks the configuration's `authorize` whether a user may view a pair. Without a clear yes, the user may not. */
export class Authorizer {
  readonly #authorize: GatewaySettings['authorize'];

  constructor(authorize: GatewaySettings['authorize']) {
    this.#authorize = authorize;
  }

  /** Whether the configuration has an `authorize`. Without one, everyone may view every pair. */
  get isConfigured(): boolean {
    return this.#authorize !== undefined;
  }

  /** Why the user may not view the pair; undefined if they may. */
  async refusal(user: GatewayUser, pair: GatewayPair): Promise<PgfreshError | undefined> {
    if (!this.#authorize) return undefined;
    const name = `${pair.dataType} ${pair.key}`;
    try {
      const allowed: unknown = await within(timeoutMs, this.#authorize(user, pair), () => {
        throw new Error(`authorize took longer than ${timeoutMs / 1_000} s`);
      });
      if (allowed === true) return undefined;
      if (allowed === false) return new PgfreshError('PGF_LIVE_FORBIDDEN', { pair: name });
      return new PgfreshError('PGF_LIVE_UNDECIDED', {
        pair: name,
        problem: 'authorize returned neither true nor false',
      });
    } catch (error) {
      return new PgfreshError('PGF_LIVE_UNDECIDED', { pair: name, problem: problemOf(error) }, { cause: error });
    }
  }
}
