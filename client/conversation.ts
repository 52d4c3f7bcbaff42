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
  /** What the server was asked for, and whether it has answered. */
  readonly #asked = new Map<string, { readonly pair: PairName; answered: boolean }>();
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
    this.#ask('add');
    // A pair that is not answered yet may be another one, which is wanted.
    const dropped = [...this.#asked.values()].filter(({ pair, answered }) => answered && !this.#pairs.find(pair));
    for (const { pair } of dropped) this.#asked.delete(nameOf(pair));
    if (dropped.length > 0) this.#send({ type: 'drop', pairs: dropped.map(({ pair }) => pair) });
  }

  /** Asks again for what was refused: a key may be there now, and a server less busy. */
  askAgain(): void {
    this.#ask('add', true);
  }

  refresh(pair: Pair): void {
    // What was never asked for can not be refreshed.
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
        const pair = this.#pairs.find(message.pair);
        return pair?.become(freshOf(message, pair.fresh));
      }
      case 'revoked':
        this.#asked.delete(nameOf(message.pair));
        return this.#pairs.find(message.pair)?.refuse(message);
      case 'viewers':
        return this.#pairs.find(message.pair)?.count(message.viewers);
      case 'refresh':
        return this.#pairs.find(message.pair)?.settle(({ resolve, reject }) => {
          if (message.result === 'refused') reject(new FreshError(message));
          else resolve(message.result);
        });
      default:
    }
  }

  #answer(answer: PairAnswer): void {
    const name = nameOf(answer.pair);
    const pair = this.#pairs.find(answer.pair);
    if (answer.result === 'refused') {
      this.#asked.delete(name);
      pair?.refuse(answer);
    } else if (answer.key === undefined) {
      this.#asked.set(name, { pair: answer.pair, answered: true });
    } else {
      const meant: PairName = [answer.pair[0], answer.key];
      this.#asked.delete(name);
      this.#asked.set(nameOf(meant), { pair: meant, answered: true });
      if (pair) this.#pairs.identify(pair, answer.key);
    }
  }

  #ask(type: 'want' | 'add', again = false): void {
    const wanted: WantedPair[] = [];
    for (const { pair, name, meant, fresh } of this.#pairs) {
      const isRefused = fresh.state === 'refused';
      if (meant || this.#asked.has(name) || (isRefused && !again)) continue;
      this.#asked.set(name, { pair, answered: false });
      // What was refused is said whole, also if it is as old as what is here.
      wanted.push(isRefused || fresh.version === null ? pair : [...pair, fresh.version]);
    }
    let kind = type;
    for (const pairs of portions(wanted, this.#limit - 100)) {
      this.#send({ type: kind, pairs });
      kind = 'add';
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
