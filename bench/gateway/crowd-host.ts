import { report, serve } from '../child-side.ts';
import { now, sleep } from '../clock.ts';
import { hello, messagesToSnapshot, want } from './conversation.ts';
import { Viewer } from './viewer.ts';

// The program of a process with viewers in it.

export interface Come {
  readonly port: number;
  readonly keys: readonly string[];
}

export interface Joins {
  readonly port: number;
  readonly perSecond: number;
  readonly seconds: number;
  /** In turns. */
  readonly keys: readonly string[];
}

const [number] = process.argv.slice(2).map(Number) as [number];
const connectingAtOnce = 50;
const addresses = 8;
const stayMs = 1_000;
const everyMs = 2;

let staying: Viewer[] = [];
let heard = 0;
let problem: string | undefined;
let reached: { readonly count: number; readonly tell: (at: number) => void; readonly at: Promise<number> } | undefined;
let turn = 0;

function lost(why: string): void {
  problem ??= why;
}

// Other systems have one loopback address only.
function nextAddress(): string | undefined {
  turn = (turn + 1) % addresses;
  return process.platform === 'linux' ? `127.0.${number + 1}.${turn + 1}` : undefined;
}

function hear(): void {
  heard += 1;
  if (heard === reached?.count) reached.tell(now());
}

/** Somebody who looks at a pair. Settles with the milliseconds until he has its snapshot. */
function join(port: number, key: string, onLater: () => void): { viewer: Viewer; shown: Promise<number> } {
  const { promise: shown, resolve, reject } = Promise.withResolvers<number>();
  let messages = 0;
  let began = 0;
  const viewer = new Viewer({
    port,
    from: nextAddress(),
    onOpen: () => {
      began = now();
      viewer.say(hello, want(key));
    },
    onMessage: () => {
      if (++messages < messagesToSnapshot) return;
      if (messages === messagesToSnapshot) resolve(now() - began);
      else onLater();
    },
    onLost: (why) => {
      lost(why);
      reject(new Error(why));
    },
  });
  return { viewer, shown };
}

async function come({ port, keys }: Come): Promise<void> {
  const left = [...keys];
  const one = async (): Promise<void> => {
    for (let key = left.pop(); key !== undefined; key = left.pop()) {
      const { viewer, shown } = join(port, key, hear);
      staying.push(viewer);
      await shown;
    }
  };
  await Promise.all(Array.from({ length: connectingAtOnce }, one));
}

/** So many come in a second, whatever becomes of those before them, and each goes after a while. */
async function joins({ port, perSecond, seconds, keys }: Joins): Promise<number[]> {
  const times: Promise<number>[] = [];
  const leaves: Promise<void>[] = [];
  const began = now();
  while (times.length < perSecond * seconds) {
    const due = Math.min(perSecond * seconds, ((now() - began) / 1000) * perSecond);
    while (times.length < due) {
      const { viewer, shown } = join(port, keys[times.length % keys.length]!, () => {});
      times.push(shown);
      leaves.push(
        shown.then(async () => {
          await sleep(stayMs);
          viewer.leave();
        }),
      );
    }
    await sleep(everyMs);
  }
  const all = await Promise.all(times);
  await Promise.all(leaves);
  return all;
}

serve({
  come,
  joins,
  /** From now on messages are counted. */
  listen: (count: number) => {
    const { promise, resolve } = Promise.withResolvers<number>();
    heard = 0;
    reached = { count, tell: resolve, at: promise };
  },
  /** When the last of them came. */
  heard: () => reached!.at,
  problem: () => problem ?? null,
  leave: () => {
    for (const viewer of staying) viewer.cut();
    staying = [];
  },
});
report({ type: 'ready', value: undefined });
