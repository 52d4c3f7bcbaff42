import type { PairAnswer, PairName, WantedPair } from '#protocol';
import type { GatewayPair, GatewayUser, LimitSettings } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import type { Events } from '../../events/index.ts';
import { Bucket } from '../../lifecycle/index.ts';
import { admitted } from '../pairs/admission.ts';
import type { Identified, Identity } from '../auth/authenticator.ts';
import type { Permission } from '../auth/authorizer.ts';
import { encode, protocolVersion, readMessage, type ReadMessage } from '../protocol.ts';
import type { Questions } from '../pairs/pair-queries.ts';
import type { Reader } from '../../changes/index.ts';
import type { Readers } from '../auth/rls-readers.ts';
import { closeCode, refuse } from '../http/error-response.ts';
import type { Relief } from './slow-sessions.ts';
import { reasonSentences } from '../sentences.ts';
import type { Account, Tally } from '../auth/usage-limits.ts';
import { readVersion, type NamedPair, type Subscription, type Viewer } from '../pairs/watched-pair.ts';
import type { Viewings } from '../pairs/watched-pairs.ts';
import { settledWithin, Wish } from './pair-request.ts';

/** One way to a client, whatever it is made of. */
export interface Outlet {
  send(message: Buffer): void;
  /** What is sent in this turn goes out at its end, in one piece. */
  hold(): void;
  /** Bytes that wait for the client to read. */
  readonly buffered: number;
  /** Ends it when what was sent has gone. */
  close(code: number, reason: string): void;
  /** Ends it now. */
  cut(): void;
  /** Asks for a sign of life; false if the last one was not answered. */
  beat(): boolean;
}

/** What all sessions of a gateway share. */
export interface SessionParts {
  readonly limits: LimitSettings;
  readonly identity: Identity;
  readonly permission: Permission;
  readonly questions: Questions;
  readonly readers: Readers;
  readonly viewings: Viewings;
  readonly tally: Tally;
  readonly events: Events;
  readonly relief: Relief;
}

export interface Client {
  readonly outlet: Outlet;
  readonly account: Account;
  readonly address: string;
  readonly isLocal: boolean;
  /** The name of an event stream, by which messages come to it. */
  readonly stream?: string;
}

// A pair that was just asked for is under way already.
const refreshPauseMs = 5_000;
// Pairs of which more is known within this time are answered together.
const promptMs = 250;
const longestPauseMs = 2_000;
// With the time that the answer may take, and that of a round, a right that was taken away ends within ten seconds.
const recheckEveryMs = 4_000;
/** In times of what may wait. */
const mostUnread = 4;

/** One connection of one user: the pairs that he wants, and what he still has to be sent. */
export class Session implements Viewer {
  readonly client: Client;
  readonly #parts: SessionParts;
  readonly #messages: Bucket;
  readonly #subscriptions = new Map<string, Subscription>();
  /** Pairs whose key the client writes in another way than their data type. */
  readonly #writings = new Map<string, string>();
  /** Pairs that are answered later, by the names that the client gives them. */
  readonly #late = new Map<string, Wish>();
  /** Random offset that spreads pings over rounds. */
  readonly turn = Math.floor(Math.random() * 1_000);
  /** When it is to be asked again whether he may see what he sees. */
  recheckAt = performance.now() + recheckEveryMs;
  /** Whether he wants to know how many look. */
  counts = false;
  #identified: Identified;
  /** As whom he reads, of one message, what he has seen as somebody else before. */
  #renewed: Reader | undefined;
  #isGreeted = false;
  #isOpen = true;
  /** Messages are answered one after another. */
  #work: Promise<void> | undefined;
  /** While he is slow: whose newest state he lacks. */
  #behind: Set<Subscription> | undefined;
  #skipped = 0;
  #slowSince = 0;
  /** Bytes that were said since then. */
  #unread = 0;

  constructor(parts: SessionParts, client: Client, identified: Identified) {
    this.#parts = parts;
    this.client = client;
    this.#identified = identified;
    const { messagesPerSecond } = parts.limits;
    this.#messages = new Bucket(messagesPerSecond, messagesPerSecond * 2);
  }

  get user(): GatewayUser {
    return this.#identified.user;
  }

  get expiresAt(): number {
    return this.#identified.expiresAt;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Begins, once the client has said that it speaks our protocol. */
  greet(protocol: unknown): void {
    if (protocol !== protocolVersion) {
      const got = protocol === undefined ? 'has not said which' : `speaks ${JSON.stringify(protocol)?.slice(0, 40)}`;
      return this.end(new PgfreshError('PGF_LIVE_PROTOCOL', { known: protocolVersion, got }));
    }
    this.#isGreeted = true;
    const { pairsPerConnection: pairs, messageBytes } = this.#parts.limits;
    this.#say({
      type: 'welcome',
      protocol: protocolVersion,
      ...(this.client.stream === undefined ? {} : { session: this.client.stream }),
      user: this.user.id,
      expires_at: this.#expiry(),
      now: new Date().toISOString(),
      limits: { pairs, message_bytes: messageBytes },
    });
  }

  /** Takes a message. Throws what is wrong with it before anything of it is done; the rest is said to the client. */
  receive(text: string): void {
    const { limits } = this.#parts;
    if (!this.#messages.take())
      return this.end(new PgfreshError('PGF_LIVE_TOO_FAST', { limit: limits.messagesPerSecond }));
    const message = readMessage(text, limits.messageDepth);
    // An answer, and the snapshots that follow it.
    this.client.outlet.hold();
    if (message.type === 'hello') {
      this.counts = message.viewers === true;
      return this.greet(message.protocol);
    }
    if (!this.#isGreeted) return this.greet(undefined);
    const work = (this.#work ?? Promise.resolve()).then(async () => {
      if (!this.#isOpen) return;
      await this.#answer(message).catch((error: unknown) => this.complain(error));
      if (this.#work === work) this.#work = undefined;
    });
    this.#work = work;
  }

  /** Says that something could not be done. */
  complain(error: unknown): void {
    const { code, message, next } = refuse(error, this.#parts.events);
    this.#say({ type: 'error', code, message, next });
  }

  /** There is a newer state of a pair. A slow client gets it when it has read what is there, and only the newest. */
  offer(subscription: Subscription): void {
    const { viewing } = subscription;
    if (!viewing.shown || viewing.shown.version <= subscription.version) return;
    if (this.#behind) {
      if (this.#behind.has(subscription)) this.#skipped += 1;
      this.#behind.add(subscription);
    } else this.#sendState(subscription);
  }

  /** Goes on with a slow client if it has read enough, and ends it if it has not for too long. */
  relieve(now = performance.now()): void {
    const { bufferBytes, slowFor } = this.#parts.limits;
    const behind = this.#behind!;
    if (this.client.outlet.buffered > bufferBytes / 2) {
      if (now - this.#slowSince > slowFor) this.#endSlow();
      return;
    }
    this.#behind = undefined;
    this.#parts.relief.delete(this);
    if (this.#skipped > 0) {
      this.#parts.events.emit({ type: 'gateway.slow', skipped: this.#skipped });
      this.#say({ type: 'resync', skipped: this.#skipped });
      this.#skipped = 0;
    }
    for (const subscription of behind) this.offer(subscription);
  }

  /** There is no such pair any more. */
  lose({ viewing }: Subscription, why: PgfreshError): void {
    this.#revoke(viewing, why);
  }

  tellHeld({ viewing }: Subscription): void {
    this.#sayHeld([viewing.dataType, viewing.key]);
  }

  tellViewers(subscription: Subscription, viewers: number): void {
    // Who is slow has enough to read.
    if (this.#behind || subscription.isNew) return;
    const { dataType, key } = subscription.viewing;
    subscription.viewers = viewers;
    this.#say({ type: 'viewers', pair: [dataType, key], viewers });
  }

  /** Asks again whether he may see what he sees. Not to be called before the last time has ended. */
  async recheck(): Promise<void> {
    const { permission } = this.#parts;
    const all = [...this.#subscriptions.values()].map(async ({ viewing }) => {
      const refusal = await permission.refusal(this.user, pairOf(viewing));
      if (refusal) this.#revoke(viewing, refusal);
    });
    await Promise.all(all);
    this.recheckAt = performance.now() + recheckEveryMs;
  }

  /** Ends the connection, and says why. */
  end(error: PgfreshError): void {
    const { status, code, message, next } = refuse(error, this.#parts.events);
    this.#say({ type: 'error', code, message, next });
    this.client.outlet.close(closeCode(status), code);
    this.closed();
  }

  /** Sends the client to another server. */
  sendAway(): void {
    // Not all at the same moment.
    this.#say({ type: 'reconnect', after_ms: Math.round(Math.random() * longestPauseMs) });
    this.client.outlet.close(1012, 'PGF_LIVE_STOPPING');
    this.closed();
  }

  /** The connection is gone. */
  closed(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#parts.relief.delete(this);
    this.#late.clear();
    for (const name of this.#subscriptions.keys()) this.#drop(name);
  }

  async #answer(message: Exclude<ReadMessage, { type: 'hello' }>): Promise<void> {
    switch (message.type) {
      case 'want': {
        const kept = new Set(message.pairs.map(([dataType, key]) => this.#nameOf([dataType, key])));
        for (const name of this.#subscriptions.keys()) if (!kept.has(name)) this.#drop(name);
        this.#late.clear();
        return this.#add(message.pairs);
      }
      case 'add':
        return this.#add(message.pairs);
      case 'drop':
        for (const pair of message.pairs) {
          this.#late.delete(nameOf(...pair));
          this.#drop(this.#nameOf(pair));
        }
        return undefined;
      case 'refresh':
        return this.#refresh(message.pair);
      case 'auth':
        return this.#authenticate(message.token);
      case 'ping':
        return this.#say({ type: 'pong', now: new Date().toISOString() });
    }
  }

  /**
   * Answers what is known of the wanted pairs in one message. A data type whose table of keys does not answer, or which
   * `authorize` does not decide, is answered later: neither other pairs nor later messages wait for it.
   */
  async #add(wanted: readonly WantedPair[]): Promise<void> {
    const { questions, limits } = this.#parts;
    const { account } = this.client;
    const asked = [...new Map(wanted.map((pair) => [nameOf(pair[0], pair[1]), pair])).values()];
    const more = asked.filter(([dataType, key]) => !this.#subscriptions.has(this.#nameOf([dataType, key]))).length;
    account.wishes += more;
    const mayPlan =
      this.#subscriptions.size + more <= limits.pairsPerConnection &&
      account.pairs + account.wishes <= limits.pairsPerUser;
    const wishes = asked.map((pair) => {
      const [dataType, key] = pair;
      this.#late.delete(nameOf(dataType, key));
      return new Wish(pair, admitted({ dataType, key }, this.user, account, this.#parts, { mayPlan }));
    });
    const prompt = wishes.filter(({ dataType }) => !questions.isHeld(dataType));
    await settledWithin(prompt, promptMs);
    account.wishes -= more;
    const late = wishes.filter(({ found }) => found === undefined);
    for (const wish of late) {
      if (this.#late.size < limits.pairsPerConnection) this.#late.set(nameOf(wish.pair[0], wish.pair[1]), wish);
      else wish.found = tooManyPairs('One connection', limits.pairsPerConnection);
    }
    const known = wishes.filter(({ found }) => found !== undefined);
    if (known.length > 0 || late.length === 0) this.#answerWishes(known);
    for (const { pair, found } of late) if (!found) this.#sayHeld([pair[0], pair[1]]);
    for (const ofType of Map.groupBy(late, ({ dataType }) => dataType).values())
      void Promise.all(ofType.map(({ settled }) => settled)).then(() => this.#answerLate(ofType));
  }

  // What was dropped or wanted anew meanwhile is not answered.
  #answerLate(wishes: readonly Wish[]): void {
    const open = wishes.filter((wish) => {
      const name = nameOf(wish.pair[0], wish.pair[1]);
      return this.#late.get(name) === wish && this.#late.delete(name);
    });
    if (open.length > 0) this.#answerWishes(open);
  }

  // In one go: nothing of a pair is sent before it is accepted.
  #answerWishes(wishes: readonly Wish[]): void {
    this.#renewed = undefined;
    const joined: Subscription[] = [];
    const answers = wishes.map(({ pair: [dataType, key, has], found }): PairAnswer => {
      const pair: PairName = [dataType, key];
      try {
        if (found instanceof Error) throw found;
        joined.push(...this.#join(pair, found!, has));
        return { pair, result: 'accepted', ...(found!.key === key ? {} : { key: found!.key }) };
      } catch (error) {
        const { code, message, next } = refuse(error, this.#parts.events);
        return { pair, result: 'refused', code, message, next };
      }
    });
    this.#say({ type: 'answer', pairs: answers });
    for (const subscription of joined) {
      this.offer(subscription);
      if (subscription.viewing.isWaiting) this.tellHeld(subscription);
    }
  }

  #join(asked: PairName, pair: NamedPair, has: string | undefined): Subscription[] {
    const { limits, viewings } = this.#parts;
    const { account } = this.client;
    const [name, written] = [nameOf(pair.dataType, pair.key), nameOf(...asked)];
    if (!this.#isOpen) throw new PgfreshError('PGF_LIVE_STOPPING', {});
    if (this.#subscriptions.has(name)) {
      if (name !== written && this.#writings.size < limits.pairsPerConnection) this.#writings.set(written, name);
      return [];
    }
    if (this.#subscriptions.size >= limits.pairsPerConnection)
      throw tooManyPairs('One connection', limits.pairsPerConnection);
    if (account.pairs >= limits.pairsPerUser) throw tooManyPairs('One user', limits.pairsPerUser);
    const subscription = viewings.join(this.#reading(pair, has), this.user.id, this, has);
    this.#subscriptions.set(name, subscription);
    if (name !== written) this.#writings.set(written, name);
    account.pairs += 1;
    return [subscription];
  }

  // What he has from another token may be more than he sees with this one, and newer than what is known here.
  #reading(pair: NamedPair, has: string | undefined): NamedPair {
    const { reader } = pair;
    if (!reader || has === undefined || readVersion(has)?.reader === reader.tag) return pair;
    if (this.#renewed?.tag !== reader.tag) this.#renewed = this.#parts.readers.renewed(reader);
    return { ...pair, reader: this.#renewed };
  }

  #drop(name: string): void {
    const subscription = this.#subscriptions.get(name);
    if (!subscription) return;
    this.#subscriptions.delete(name);
    for (const [written, meant] of this.#writings) if (meant === name) this.#writings.delete(written);
    this.#behind?.delete(subscription);
    this.client.account.pairs -= 1;
    this.#parts.viewings.leave(subscription, this.user.id);
  }

  #revoke({ dataType, key }: GatewayPair, error: PgfreshError): void {
    const name = nameOf(dataType, key);
    if (!this.#isOpen || !this.#subscriptions.has(name)) return;
    this.#drop(name);
    const { code, message, next } = refuse(error, this.#parts.events);
    this.#say({ type: 'revoked', pair: [dataType, key], code, message, next });
  }

  async #refresh(pair: PairName): Promise<void> {
    const { limits, questions, events } = this.#parts;
    const subscription = this.#subscriptions.get(this.#nameOf(pair));
    try {
      if (!subscription) throw new PgfreshError('PGF_LIVE_FORBIDDEN', { pair: pair.join(' ') });
      const { viewing } = subscription;
      if (performance.now() - viewing.audience.refreshedAt < refreshPauseMs)
        return this.#say({ type: 'refresh', pair, result: 'recent' });
      if (!this.client.account.refreshes.take())
        throw new PgfreshError('PGF_LIVE_TOO_MANY_REFRESHES', { limit: limits.refreshesPerMinute });
      viewing.audience.refreshedAt = performance.now();
      this.#say({ type: 'refresh', pair, result: await questions.refresh(viewing) });
    } catch (error) {
      const { code, message, next } = refuse(error, events);
      this.#say({ type: 'refresh', pair, result: 'refused', code, message, next });
    }
  }

  async #authenticate(token: string): Promise<void> {
    const identified = await this.#parts.identity
      .of(token, this.client.isLocal)
      .catch((error: unknown) => error as PgfreshError);
    if (identified instanceof Error) return this.end(identified);
    // What was counted for one cannot go over to another.
    if (identified.user.id !== this.user.id)
      return this.end(new PgfreshError('PGF_LIVE_TOKEN', { problem: 'it is that of another user' }));
    this.#identified = identified;
    this.#say({ type: 'authenticated', expires_at: this.#expiry() });
    await this.#rejoin();
    return this.recheck();
  }

  /** What he sees by row security, he sees as his new token says from now on. */
  async #rejoin(): Promise<void> {
    const { readers, viewings } = this.#parts;
    this.#renewed = undefined;
    const all = [...this.#subscriptions].filter(([, { viewing }]) => viewing.reader !== undefined);
    for (const [name, subscription] of all) {
      const { viewing, version, digest, isNew } = subscription;
      const reader = await readers.of(this.user, viewing.dataType).catch((error: unknown) => error as PgfreshError);
      if (this.#subscriptions.get(name) !== subscription) continue;
      if (reader instanceof Error) this.#revoke(viewing, reader);
      else if (reader.tag !== viewing.reader!.tag) {
        const { dataType, type, key } = viewing;
        const pair = this.#reading({ dataType, type, key, reader }, version);
        const joined = Object.assign(viewings.join(pair, this.user.id, this), { version, digest, isNew });
        this.#subscriptions.set(name, joined);
        this.#behind?.delete(subscription);
        viewings.leave(subscription, this.user.id);
        this.offer(joined);
      }
    }
  }

  #sendState(subscription: Subscription): void {
    const { viewing, digest, isNew } = subscription;
    const shown = viewing.shown!;
    subscription.version = shown.version;
    subscription.digest = shown.digest;
    subscription.isNew = false;
    this.#send(viewing.message(isNew ? 'snapshot' : 'change', shown.digest !== digest));
  }

  #send(message: Buffer): void {
    const { outlet } = this.client;
    const { bufferBytes } = this.#parts.limits;
    outlet.send(message);
    if (outlet.buffered <= bufferBytes) return;
    if (!this.#behind) {
      this.#behind = new Set();
      this.#slowSince = performance.now();
      this.#unread = 0;
      this.#parts.relief.add(this);
    }
    this.#unread += message.length;
  }

  #sayHeld(pair: PairName): void {
    const reason = 'quarantined';
    this.#say({ type: 'waiting', pair, activity: 'waiting', reason, words: reasonSentences[reason] });
  }

  #nameOf(pair: PairName): string {
    const written = nameOf(...pair);
    return this.#writings.get(written) ?? written;
  }

  #say(message: Parameters<typeof encode>[0]): void {
    if (!this.#isOpen) return;
    this.#send(encode(message));
    // Who asks on and on, and reads nothing of what he is answered.
    if (this.#behind && this.#unread > mostUnread * this.#parts.limits.bufferBytes) this.#endSlow();
  }

  #endSlow(): void {
    const seconds = Math.round((performance.now() - this.#slowSince) / 1_000);
    this.#unread = 0;
    this.end(new PgfreshError('PGF_LIVE_SLOW', { seconds }));
  }

  #expiry(): string | null {
    return Number.isFinite(this.expiresAt) ? new Date(this.expiresAt).toISOString() : null;
  }
}

function tooManyPairs(whose: string, limit: number): PgfreshError {
  return new PgfreshError('PGF_LIVE_TOO_MANY_PAIRS', { whose, limit });
}

function nameOf(dataType: string, key: string): string {
  return JSON.stringify([dataType, key]);
}

function pairOf({ dataType, key }: GatewayPair): GatewayPair {
  return { dataType, key };
}
