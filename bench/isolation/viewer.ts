import { PlainClient } from '../../test/harness/plain-client.ts';
import { now } from '../clock.ts';
import { hello } from '../gateway/conversation.ts';

interface Said {
  readonly type: string;
  readonly pair?: readonly [string, string];
}

/** A connected viewer that requests pairs. */
export class Viewer {
  readonly #client: PlainClient;
  readonly #opened = Promise.withResolvers<void>();
  readonly #wanted = new Map<string, (at: number) => void>();

  constructor(port: number) {
    this.#client = new PlainClient({
      port,
      from: undefined,
      onOpen: () => {
        this.#client.say(hello);
        this.#opened.resolve();
      },
      onMessage: (message) => this.#hear(JSON.parse(message.text()) as Said),
      // Ends the bench.
      onLost: (why) => {
        throw new Error(`a viewer was lost: ${why}`);
      },
    });
  }

  /** Resolves with the milliseconds from request to snapshot. */
  async add(dataType: string, key: string): Promise<number> {
    const [ms] = await this.addAll([[dataType, key]]);
    return ms!;
  }

  /** The same for several pairs, in one message. */
  async addAll(pairs: readonly (readonly [string, string])[]): Promise<number[]> {
    await this.#opened.promise;
    const snapshots = pairs.map((pair) => {
      const { promise, resolve } = Promise.withResolvers<number>();
      this.#wanted.set(pair.join(' '), resolve);
      return promise;
    });
    const began = now();
    this.#client.say(JSON.stringify({ type: 'add', pairs }));
    return (await Promise.all(snapshots)).map((at) => at - began);
  }

  drop(dataType: string, key: string): void {
    this.#client.say(JSON.stringify({ type: 'drop', pairs: [[dataType, key]] }));
  }

  leave(): void {
    this.#client.leave();
  }

  #hear({ type, pair }: Said): void {
    if (type !== 'snapshot' || !pair) return;
    const name = pair.join(' ');
    this.#wanted.get(name)?.(now());
    this.#wanted.delete(name);
  }
}
