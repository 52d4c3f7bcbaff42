import type { Socket } from 'node:net';

/** One call as recorded here. */
export interface MeteredCall {
  /** When it arrived, in milliseconds since 1970 by a monotonic clock. */
  readonly at: number;
  readonly key: string;
  readonly route: string;
  readonly symbol: string | null;
  readonly fault: string | null;
  status: number | null;
  /** All bytes written to its socket, headers included; null until it ends. */
  bytes: number | null;
}

interface Sum {
  calls: number;
  bytes: number;
}

const windowMs = 60_000;
const kept = 500_000;

/** What a provider would bill: every call, and every byte written for it. */
export class Meter {
  #calls: MeteredCall[] = [];
  #forgotten = 0;
  #sums = new Map<string, Map<string, Sum>>();
  /** Bytes of a socket that belong to ended answers. */
  readonly #settled = new WeakMap<Socket, number>();

  begin(call: Omit<MeteredCall, 'status' | 'bytes'>): MeteredCall {
    const begun: MeteredCall = { ...call, status: null, bytes: null };
    this.#calls.push(begun);
    if (this.#calls.length >= 2 * kept) this.#forgotten += this.#calls.splice(0, kept).length;
    this.#sumOf(begun).calls++;
    return begun;
  }

  end(call: MeteredCall, socket: Socket, status: number | null): void {
    call.status = status;
    call.bytes = this.settle(socket);
    this.#sumOf(call).bytes += call.bytes;
  }

  /** Bytes of a socket since the last call of this. */
  settle(socket: Socket): number {
    const written = socket.bytesWritten;
    const bytes = written - (this.#settled.get(socket) ?? 0);
    this.#settled.set(socket, written);
    return bytes;
  }

  reset(): void {
    this.#calls = [];
    this.#forgotten = 0;
    this.#sums = new Map();
  }

  calls(): { forgotten: number; calls: readonly MeteredCall[] } {
    return { forgotten: this.#forgotten, calls: this.#calls };
  }

  report() {
    const keys = [...this.#sums].map(([key, routes]) => [
      key,
      { ...total(routes.values()), busiestMinute: this.#busiestMinute(key), routes: Object.fromEntries(routes) },
    ]);
    return {
      ...total([...this.#sums.values()].flatMap((routes) => [...routes.values()])),
      open: this.#calls.filter(({ bytes }) => bytes === null).length,
      keys: Object.fromEntries(keys) as Record<string, Sum & { busiestMinute: number; routes: Record<string, Sum> }>,
    };
  }

  /** The most calls in any minute, refused ones too. */
  #busiestMinute(key: string): number {
    const times = this.#calls.filter((call) => call.key === key).map(({ at }) => at);
    let most = 0;
    for (let first = 0, last = 0; last < times.length; last++) {
      while (times[first]! <= times[last]! - windowMs) first++;
      most = Math.max(most, last - first + 1);
    }
    return most;
  }

  #sumOf({ key, route }: MeteredCall): Sum {
    const routes = this.#sums.get(key) ?? new Map<string, Sum>();
    this.#sums.set(key, routes);
    const sum = routes.get(route) ?? { calls: 0, bytes: 0 };
    routes.set(route, sum);
    return sum;
  }
}

function total(sums: Iterable<Sum>): Sum {
  let [calls, bytes] = [0, 0];
  for (const sum of sums) {
    calls += sum.calls;
    bytes += sum.bytes;
  }
  return { calls, bytes };
}
