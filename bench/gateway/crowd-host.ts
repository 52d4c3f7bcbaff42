import { PlainClient } from '../../test/harness/plain-client.ts';
import { report, serve } from '../child-side.ts';
import { now, sleep } from '../clock.ts';
import { add, drop, hello, messagesToNext, messagesToSnapshot, want } from './conversation.ts';

// A process with viewers.

export interface Come {
  readonly port: number;
  readonly keys: readonly string[];
}

export interface Joins {
  /** Viewers of this pair also look at others, one after the other. */
  readonly who: string;
  readonly perSecond: number;
  readonly keys: readonly string[];
}

const [number] = process.argv.slice(2).map(Number) as [number];
const connectingAtOnce = 50;
const addresses = 8;
const stayMs = 1_000;
const everyMs = 2;

let turn = 0;

// Other systems have one loopback address only.
function nextAddress(): string | undefined {
  turn = (turn + 1) % addresses;
  return process.platform === 'linux' ? `127.0.${number + 1}.${turn + 1}` : undefined;
}

/** A viewer of a pair that stays. */
class Viewer {
  readonly key: string;
  readonly #client: PlainClient;
  /** Resolves with its snapshot. */
  readonly shown: Promise<number>;
  #waiting: { left: number; readonly tell: (at: number) => void } | undefined;

  constructor(port: number, key: string) {
    this.key = key;
    this.shown = this.#after(messagesToSnapshot);
    this.#client = new PlainClient({
      port,
      from: nextAddress(),
      onOpen: () => this.#client.say(hello, want(key)),
      onMessage: () => this.#hear(),
      // Ends the process, and with it the bench.
      onLost: (why) => {
        throw new Error(`a viewer was lost: ${why}`);
      },
    });
  }

  /** Looks at another pair for a while. Resolves with the milliseconds until its snapshot. */
  async join(key: string): Promise<number> {
    const shown = this.#after(messagesToNext);
    const began = now();
    this.#client.say(add(key));
    const ms = (await shown) - began;
    setTimeout(() => this.#client.say(drop(key)), stayMs);
    return ms;
  }

  #after(messages: number): Promise<number> {
    const { promise, resolve } = Promise.withResolvers<number>();
    this.#waiting = { left: messages, tell: resolve };
    return promise;
  }

  #hear(): void {
    if (!this.#waiting) return hear();
    if (--this.#waiting.left > 0) return;
    this.#waiting.tell(now());
    this.#waiting = undefined;
  }
}

const viewers: Viewer[] = [];
let heard = 0;
let reached: { readonly count: number; readonly tell: (at: number) => void; readonly at: Promise<number> } | undefined;

function hear(): void {
  heard += 1;
  if (heard === reached?.count) reached.tell(now());
}

async function come({ port, keys }: Come): Promise<void> {
  const left = [...keys];
  const one = async (): Promise<void> => {
    for (let key = left.pop(); key !== undefined; key = left.pop()) {
      const viewer = new Viewer(port, key);
      viewers.push(viewer);
      await viewer.shown;
    }
  };
  await Promise.all(Array.from({ length: connectingAtOnce }, one));
}

/** Starts this many per second, without waiting for earlier ones. */
async function joins({ who, perSecond, keys }: Joins): Promise<number[]> {
  const joiners = viewers.filter(({ key }) => key === who);
  const times: Promise<number>[] = [];
  const began = now();
  while (times.length < keys.length) {
    const due = Math.min(keys.length, ((now() - began) / 1000) * perSecond);
    while (times.length < due) times.push(joiners[times.length % joiners.length]!.join(keys[times.length]!));
    await sleep(everyMs);
  }
  const all = await Promise.all(times);
  await sleep(stayMs);
  return all;
}

serve({
  come,
  joins,
  /** Starts counting messages. */
  listen: (count: number) => {
    const { promise, resolve } = Promise.withResolvers<number>();
    heard = 0;
    reached = { count, tell: resolve, at: promise };
  },
  /** When the last one arrived. */
  heard: () => reached!.at,
});
report({ type: 'ready', value: undefined });
