import { FreshError } from './fresh-error.ts';
import { freshOf } from './fresh.ts';
import { nameOf, type Pair, type Pairs } from './pairs.ts';
import {
  protocol,
  type ClientMessage,
  type PairAnswer,
  type PairName,
  type ServerMessage,
  type WantedPair,
} from './protocol.ts';

/** The messages about pairs on one connection: what this client requested, and the server's answers. */
export class Conversation {
  readonly #pairs: Pairs;
  readonly #send: (message: ClientMessage) => void;
  readonly #maxBytes: number;
  /** The requested pairs; undefined until the server has answered, because it may spell the key differently. */
  readonly #requested = new Map<string, PairName | undefined>();
  #counts = false;

  constructor(pairs: Pairs, send: (message: ClientMessage) => void, messageBytes: number) {
    this.#pairs = pairs;
    this.#send = send;
    this.#maxBytes = messageBytes;
  }

  /** Requests all pairs, with the versions that the client has. */
  begin(): void {
    this.#ask('want', true);
    for (const pair of this.#pairs) if (pair.refreshes.length > 0) this.refresh(pair);
  }

  /** Requests new pairs, and drops those that are no longer viewed. */
  update(): void {
    const pairs: PairName[] = [];
    for (const [name, pair] of this.#requested)
      if (pair && !this.#find(pair) && this.#requested.delete(name)) pairs.push(pair);
    if (pairs[0]) this.#send({ type: 'drop', pairs });
    // Adds only after the drop, because the server sends no snapshot of a pair that it has not dropped.
    this.#ask('add');
  }

  /** Requests refused pairs again: a key may exist now, or the server may be less busy. */
  askAgain(): void {
    this.#ask('add', true);
  }

  refresh(pair: Pair): void {
    // Only a requested pair can be refreshed.
    this.update();
    this.#send({ type: 'refresh', pair: pair.pair });
  }

  /** Requests viewer counts. */
  count(): void {
    if (this.#counts) return;
    this.#counts = true;
    this.#send({ type: 'hello', protocol, viewers: true });
  }

  receive(message: ServerMessage): void {
    switch (message.type) {
      case 'answer':
        message.pairs.forEach((answer) => this.#answer(answer));
        return this.update();
      case 'snapshot':
      case 'waiting':
      case 'change': {
        const pair = this.#find(message.pair);
        return pair?.update(freshOf(message, pair.fresh));
      }
      case 'revoked':
        this.#requested.delete(nameOf(message.pair));
        return this.#find(message.pair)?.refuse(message);
      case 'viewers':
        return this.#find(message.pair)?.count(message.viewers);
      case 'refresh':
        return this.#find(message.pair)?.settle(({ resolve, reject }) => {
          if (message.result === 'refused') reject(new FreshError(message));
          else resolve(message.result);
        });
      default:
    }
  }

  #answer(answer: PairAnswer): void {
    const pair = this.#pairs.find(answer.pair);
    this.#requested.delete(nameOf(answer.pair));
    if (answer.result === 'refused') return pair?.refuse(answer);
    const [type, key] = answer.pair;
    const target: PairName = [type, answer.key ?? key];
    this.#requested.set(nameOf(target), target);
    if (pair && answer.key) this.#pairs.link(pair, answer.key);
  }

  /**
   * The pair, if this conversation requested it. A pair that was dropped and is viewed again has no rows yet, while
   * messages still on their way may leave rows out.
   */
  #find(named: PairName): Pair | undefined {
    const pair = this.#pairs.find(named);
    return pair?.asker === this ? pair : undefined;
  }

  #ask(type: 'want' | 'add', again = false): void {
    const wanted: WantedPair[] = [];
    for (const held of this.#pairs) {
      const { pair, name, target, fresh } = held;
      const isRefused = fresh.state === 'refused';
      if (target || held.asker === this || (isRefused && !again)) continue;
      held.asker = this;
      this.#requested.set(name, undefined);
      // Without a version, so that the server sends the whole state of a pair that was refused.
      wanted.push(isRefused || !fresh.version ? pair : [...pair, fresh.version]);
    }
    for (const pairs of portions(wanted, this.#maxBytes - 100)) {
      this.#send({ type, pairs });
      type = 'add';
    }
  }
}

/** Splits pairs into messages that fit the limit. */
function portions(pairs: readonly WantedPair[], limit: number): WantedPair[][] {
  const all: WantedPair[][] = [];
  let size = Infinity;
  for (const pair of pairs) {
    // A character has at most three bytes.
    const bytes = JSON.stringify(pair).length * 3;
    if (size + bytes > limit) {
      all.push([]);
      size = 0;
    }
    all.at(-1)!.push(pair);
    size += bytes;
  }
  return all;
}
