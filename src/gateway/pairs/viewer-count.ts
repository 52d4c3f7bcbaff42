/** Counts the distinct users that view a pair through this process, whatever rows they see of it. */
export class ViewerCount {
  /** How many watched pairs share this count: one per reader under row security. */
  watchedPairs = 0;
  /** Whether the pair has been planned, so that counts may be written to the database. */
  isPlanned = false;
  readonly #users = new Map<string, number>();
  /** When a viewer last requested a refresh, fresh or not. */
  refreshedAt = -Infinity;

  /** The number of distinct users. */
  get size(): number {
    return this.#users.size;
  }

  add(user: string): void {
    this.#users.set(user, (this.#users.get(user) ?? 0) + 1);
  }

  remove(user: string): void {
    const left = this.#users.get(user)! - 1;
    if (left > 0) this.#users.set(user, left);
    else this.#users.delete(user);
  }
}
