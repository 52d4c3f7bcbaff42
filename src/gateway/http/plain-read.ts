import type { IncomingMessage } from 'node:http';
import type { GatewayPair } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import { within } from '../../lifecycle/index.ts';
import { admitted } from '../pairs/admission.ts';
import type { Reception } from '../session/session-registry.ts';
import type { SessionParts } from '../session/session.ts';
import type { Subscription, Viewing } from '../pairs/watched-pair.ts';
import { settledWithin, Wish } from '../session/pair-request.ts';

const firstMs = 5_000;
const freshMs = 10_000;

/** Somebody who asks once. He counts as a viewer for a moment, so what he gets is fresh the next time at the latest. */
export class PlainReads {
  readonly #reception: Reception;
  readonly #parts: SessionParts;

  constructor(reception: Reception, parts: SessionParts) {
    this.#reception = reception;
    this.#parts = parts;
  }

  /** The pair, once it is known; with a greatest age, once it is young enough or ten seconds have passed. */
  async read(request: IncomingMessage, asked: GatewayPair, maxAgeMs: number | undefined): Promise<Viewing> {
    const { limits, viewings, questions } = this.#parts;
    const { identified, account, visitor } = await this.#reception.receive(request);
    if (!account.reads.take()) throw new PgfreshError('PGF_LIVE_TOO_FAST', { limit: limits.messagesPerSecond });
    const { user } = identified;
    const wish = new Wish([asked.dataType, asked.key], admitted(asked, user, account, this.#parts));
    await settledWithin([wish], firstMs);
    const pair = wish.found ?? new PgfreshError('PGF_LIVE_BUSY', {});
    if (pair instanceof Error) throw pair;
    const viewing = viewings.glance(pair, user.anonymous ? `anonymous:${visitor.address}` : user.id);
    if (!(await until(viewing, () => true, firstMs))) throw new PgfreshError('PGF_LIVE_BUSY', {});
    if (maxAgeMs === undefined) return viewing;
    const isYoung = (): boolean => viewing.ageMs <= maxAgeMs;
    if (isYoung()) return viewing;
    if (!account.refreshes.take())
      throw new PgfreshError('PGF_LIVE_TOO_MANY_REFRESHES', { limit: limits.refreshesPerMinute });
    await questions.refresh(viewing);
    await until(viewing, isYoung, freshMs);
    return viewing;
  }
}

/** Whether the pair is shown as it is wanted, now or within some time. Throws why it is not shown any more. */
async function until(viewing: Viewing, isWanted: () => boolean, patienceMs: number): Promise<boolean> {
  if (viewing.shown && isWanted()) return true;
  const { promise: shown, resolve, reject } = Promise.withResolvers<true>();
  const viewer = {
    offer: () => void (isWanted() && resolve(true)),
    lose: (_: Subscription, why: PgfreshError) => reject(why),
    tellHeld: () => {},
    counts: false,
    tellViewers: () => {},
  };
  const subscription: Subscription = { viewing, viewer, version: '', digest: undefined, isNew: true };
  viewing.subscriptions.add(subscription);
  const isInTime = within(patienceMs, shown, () => false);
  return isInTime.finally(() => viewing.subscriptions.delete(subscription));
}
