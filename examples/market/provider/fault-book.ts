import { z } from 'zod';
import { routes, type Route } from './answers.ts';
import { faultOf, faults, isFaultKind, type FaultKind } from './faults/index.ts';
import { listings } from './listings.ts';

const kinds = Object.keys(faults) as FaultKind[];

/** The body that orders a fault. */
const orderSchema = z.strictObject({
  kind: z.custom<FaultKind>(isFaultKind, {
    error: ({ input }) => `expected a kind of fault, got ${JSON.stringify(input)}; GET /admin/faults lists them`,
  }),
  /** Default: all of them. */
  route: z.enum(routes as [Route, ...Route[]]).optional(),
  symbol: z
    .string()
    .refine((symbol) => listings.has(symbol), 'expected a symbol that is listed')
    .optional(),
  /** Ends after this many calls. */
  times: z.int().min(1).optional(),
  /** Ends at this time. */
  until: z.iso.datetime({ offset: true }).optional(),
  /** Duration, for slow, trickle and announced waits. */
  seconds: z.number().min(0).max(3_600).optional(),
});

type Order = z.output<typeof orderSchema>;

export interface OrderedFault extends Order {
  readonly id: number;
  readonly hits: number;
}

/** The active faults. The last one that fits a call applies. */
export class FaultBook {
  #ordered: OrderedFault[] = [];
  #count = 0;

  /** Adds an order, or says what is wrong with it. */
  order(body: unknown): OrderedFault | { problem: string } {
    const read = orderSchema.safeParse(body);
    if (!read.success) {
      const [issue] = read.error.issues;
      return { problem: `${issue!.path.join('.') || 'body'}: ${issue!.message}` };
    }
    const { routes: possible = routes } = faultOf(read.data.kind);
    if (read.data.route !== undefined && !possible.includes(read.data.route))
      return { problem: `route: ${read.data.kind} is of ${possible.join(', ')}, got ${read.data.route}` };
    const fault = { ...read.data, id: ++this.#count, hits: 0 };
    this.#ordered.push(fault);
    return fault;
  }

  /** The fault for this call, which counts against its number of calls. */
  take(route: Route, symbol: string, now: number): OrderedFault | undefined {
    this.#ordered = this.#ordered.filter(({ until }) => until === undefined || Date.parse(until) > now);
    const index = this.#ordered.findLastIndex(
      (fault) =>
        (fault.route ?? route) === route &&
        (fault.symbol ?? symbol) === symbol &&
        (faultOf(fault.kind).routes ?? routes).includes(route),
    );
    const found = this.#ordered[index];
    if (!found) return undefined;
    const hit = { ...found, hits: found.hits + 1 };
    if (hit.hits === hit.times) this.#ordered.splice(index, 1);
    else this.#ordered[index] = hit;
    return hit;
  }

  /** Removes one, or all. Returns how many. */
  cancel(id?: number): number {
    const before = this.#ordered.length;
    this.#ordered = id === undefined ? [] : this.#ordered.filter((fault) => fault.id !== id);
    return before - this.#ordered.length;
  }

  report() {
    return {
      ordered: this.#ordered,
      kinds: Object.fromEntries(
        kinds.map((kind) => {
          const { what, outcome, routes: possible = routes } = faultOf(kind);
          return [kind, { what, outcome, routes: possible }];
        }),
      ),
    };
  }
}
