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

/** What is said over one connection about pairs: what this side has asked for, and what came of it. */
export class Conversation {
  readonly #pairs: Pairs;
  readonly #send: (message: ClientMessage) => void;
  readonly #limit: number;
  /** What the server was asked for; nothing where it has not answered yet, since it may write the pair in another way. */
  readonly #asked = new Map<string, PairName | undefined>();
  #counts = false;

  constructor(pairs: Pairs, send: (message: ClientMessage) => void, messageBytes: number) {
    this.#pairs = pairs;
    this.#send = send;
    this.#limit = messageBytes;
  }

  /** Says all that is wanted, with the versions that are here. */
  begin(): void {
    this.#ask('want', true);
    for (const pair of this.#pairs) if (pair.refreshes.length > 0) this.refresh(pair);
  }

  /** Says what has changed of what is wanted. */
  update(): void {
    const pairs: PairName[] = [];
    for (const [name, pair] of this.#asked) if (pair && !this.#find(pair) && this.#asked.delete(name)) pairs.push(pair);
    if (pairs[0]) this.#send({ type: 'drop', pairs });
    // After that: of what the server has not dropped it says only what changes.
    this.#ask('add');
  }

  /** Asks again for what was refused: a key may be there now, and a server less busy. */
  askAgain(): void {
    this.#ask('add', true);
  }

  refresh(pair: Pair): void {
    // What was never asked for cannot be refreshed.
    this.update();
    this.#send({ type: 'refresh', pair: pair.pair });
  }

  /** Wants to be told how many look. */
  count(): void {
    if (this.#counts) return;
    this.#counts = true;
    this.#send({ type: 'hello', protocol, viewers: true });
  }

  hear(message: ServerMessage): void {
    switch (message.type) {
      case 'answer':
        message.pairs.forEach((answer) => this.#answer(answer));
        return this.update();
      case 'snapshot':
      case 'waiting':
      case 'change': {
        const pair = this.#find(message.pair);
        return pair?.become(freshOf(message, pair.fresh));
      }
      case 'revoked':
        this.#asked.delete(nameOf(message.pair));
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
    this.#asked.delete(nameOf(answer.pair));
    if (answer.result === 'refused') return pair?.refuse(answer);
    const [type, key] = answer.pair;
    const meant: PairName = [type, answer.key ?? key];
    this.#asked.set(nameOf(meant), meant);
    if (pair && answer.key) this.#pairs.identify(pair, answer.key);
  }

  /**
   * The pair, if it is the one that was asked for. One that was left and is looked at anew has nothing of the other's
   * rows, which what is still on its way may leave out.
   */
  #find(named: PairName): Pair | undefined {
    const pair = this.#pairs.find(named);
    return pair?.asker === this ? pair : undefined;
  }

  #ask(type: 'want' | 'add', again = false): void {
    const wanted: WantedPair[] = [];
    for (const held of this.#pairs) {
      const { pair, name, meant, fresh } = held;
      const isRefused = fresh.state === 'refused';
      if (meant || held.asker === this || (isRefused && !again)) continue;
      held.asker = this;
      this.#asked.set(name, undefined);
      // What was refused is said whole, also if it is as old as what is here.
      wanted.push(isRefused || !fresh.version ? pair : [...pair, fresh.version]);
    }
    for (const pairs of portions(wanted, this.#limit - 100)) {
      this.#send({ type, pairs });
      type = 'add';
    }
  }
}

/** So many at a time as one message may have. */
function portions(pairs: readonly WantedPair[], limit: number): WantedPair[][] {
  const all: WantedPair[][] = [];
  let size = Infinity;
  for (const pair of pairs) {
    // No character has more than three.
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
