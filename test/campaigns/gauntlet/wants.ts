import { allowances } from './allowances.ts';
import { comparedKey, originalName, place } from './cast.ts';

/** Who wants which pair, as the documents count it: viewers, and what was queued by hand. */
export class Wants {
  readonly #holders = new Map<string, Set<string>>();
  readonly #until = new Map<string, number>();
  /** Since when a key is not listed any more. */
  readonly unlistedSince = new Map<string, number>();

  hold(type: string, key: string, holder: string): void {
    const name = nameOf(type, key);
    this.#holders.set(name, (this.#holders.get(name) ?? new Set()).add(holder));
  }

  /** From now on the holder does not look; calls are allowed for so long. */
  leave(type: string, key: string, holder: string, allowed: number = allowances.leave): void {
    if (this.#holders.get(nameOf(type, key))?.delete(holder)) this.queued(type, key, allowed);
  }

  queued(type: string, key: string, allowed: number = allowances.byHand): void {
    const name = nameOf(type, key);
    this.#until.set(name, Math.max(this.#until.get(name) ?? 0, Date.now() + allowed));
  }

  isHeld(type: string, key: string): boolean {
    return (this.#holders.get(nameOf(type, key))?.size ?? 0) > 0;
  }

  /** Whether a call for the pair is wanted now; a quote's viewers want its profile, a schedule wants its places. */
  isWanted(type: string, key: string): boolean {
    const name = nameOf(type, key);
    if (this.isHeld(type, key) || (this.#until.get(name) ?? 0) > Date.now()) return true;
    if (type === place.name) return (place.keys as readonly string[]).includes(key);
    return type === 'profile' && this.isWanted('quote', key);
  }

  /** For the report. */
  describe(type: string, key: string): string {
    const until = this.#until.get(nameOf(type, key));
    if (until === undefined) return 'it was never wanted';
    return `calls were allowed until ${Math.round((Date.now() - until) / 1000)} s ago`;
  }
}

function nameOf(type: string, key: string): string {
  return `${originalName(type)} ${comparedKey(type, key)}`;
}
