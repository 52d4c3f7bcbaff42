/** Those who look at a pair through this process, whatever they see of it. */
export class Audience {
  /** How many viewings of the pair are open. */
  viewings = 0;
  /** Whether the database has been asked about the pair, so that it can be told how many look. */
  isKnown = false;
  readonly #users = new Map<string, number>();
  /** When somebody last had it refreshed although it may have been fresh. */
  refreshedAt = -Infinity;

  /** How many distinct users there are. */
  get size(): number {
    return this.#users.size;
  }

  enter(user: string): void {
    this.#users.set(user, (this.#users.get(user) ?? 0) + 1);
  }

  leave(user: string): void {
    const left = this.#users.get(user)! - 1;
    if (left > 0) this.#users.set(user, left);
    else this.#users.delete(user);
  }
}
