import { Holds } from './timeout-breaker.ts';

interface Waiting {
  readonly type: number | string;
}

/** For whom is read: somebody who has seen nothing yet, a few, or so many that others must not wait for all of them. */
const lanes = ['first', 'few', 'many'] as const;
export type Lane = (typeof lanes)[number];

/** How a turn has ended: in time, too late, or not at all before its limit. */
export type TurnEnd = 'done' | 'slow' | 'timeout';

/**
 * Who reads next, of those that wait. The lanes take turns, and so do the types in a lane. Not more than so many at once,
 * and fewer of one type, so that there is room for the others whatever it does. Of a type that has just taken too long
 * only one; of one that is held, one probe per second.
 */
export class Turns<Who extends Waiting> {
  readonly #atOnce: number;
  readonly #perType: number;
  readonly #lanes = lanes.map(() => new Map<Who['type'], Set<Who>>());
  readonly #places = new Map<Who, number>();
  readonly #running = new Map<Who['type'], number>();
  readonly #slow = new Set<Who['type']>();
  readonly #holds = new Holds<Who['type']>();
  #count = 0;
  #last = lanes.length - 1;

  constructor(atOnce: number, perType = atOnce) {
    this.#atOnce = atOnce;
    this.#perType = perType;
  }

  /** Whether only probes ask it. */
  isHeld(type: Who['type']): boolean {
    return this.#holds.isHeld(type);
  }

  /** Whether it may be asked for a moment only. */
  isShort(type: Who['type']): boolean {
    return this.#holds.isShort(type);
  }

  /** How long it is until the type may be asked; 0 if it may be now. */
  pauseMs(type: Who['type']): number {
    return this.#holds.pauseMs(type);
  }

  /** Whoever waits already keeps the better lane. */
  add(who: Who, name: Lane): void {
    const lane = lanes.indexOf(name);
    if ((this.#places.get(who) ?? Infinity) <= lane) return;
    this.delete(who);
    this.#places.set(who, lane);
    const waiting = this.#lanes[lane]!.get(who.type);
    if (waiting) waiting.add(who);
    else this.#lanes[lane]!.set(who.type, new Set([who]));
  }

  delete(who: Who): void {
    const lane = this.#places.get(who);
    if (lane === undefined) return;
    this.#places.delete(who);
    const waiting = this.#lanes[lane]!.get(who.type)!;
    waiting.delete(who);
    if (waiting.size === 0) this.#lanes[lane]!.delete(who.type);
  }

  /** Whether there is room for somebody who waits. */
  get hasTurn(): boolean {
    return this.#find() !== undefined;
  }

  /** Whose turn it is, if there is room; it must end. */
  next(): Who | undefined {
    const found = this.#find();
    if (!found) return undefined;
    const { place, type, waiting } = found;
    const [who] = waiting;
    this.delete(who!);
    // Behind the other types.
    if (waiting.size > 0) {
      this.#lanes[place]!.delete(type);
      this.#lanes[place]!.set(type, waiting);
    }
    this.#running.set(type, (this.#running.get(type) ?? 0) + 1);
    this.#count += 1;
    this.#last = place;
    return who;
  }

  /** Returns whether a timeout is to be noted. */
  end({ type }: Who, how: TurnEnd): boolean {
    this.#count -= 1;
    const running = this.#running.get(type)! - 1;
    if (running > 0) this.#running.set(type, running);
    else this.#running.delete(type);
    if (how === 'done') this.#slow.delete(type);
    else this.#slow.add(type);
    if (how === 'timeout') return this.#holds.timedOut(type);
    this.#holds.answered(type);
    return false;
  }

  #find(): { readonly place: number; readonly type: Who['type']; readonly waiting: Set<Who> } | undefined {
    if (this.#count >= this.#atOnce) return undefined;
    for (let step = 1; step <= lanes.length; step++) {
      const place = (this.#last + step) % lanes.length;
      for (const [type, waiting] of this.#lanes[place]!) {
        if (this.#mayBegin(type)) return { place, type, waiting };
      }
    }
    return undefined;
  }

  #mayBegin(type: Who['type']): boolean {
    const running = this.#running.get(type) ?? 0;
    if (running === 0) return this.#holds.pauseMs(type) === 0;
    return running < this.#perType && !this.#slow.has(type);
  }
}
