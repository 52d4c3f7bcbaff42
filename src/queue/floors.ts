interface Place {
  readonly type: number;
  readonly lane: number;
  readonly id: number;
}

const cheapMs = 3;
const costFactor = 20;

/**
 * Where in the ready index the next claim may start, per data type and lane.
 *
 * While a transaction holds an old snapshot, the entries of claimed jobs cannot be removed, and a claim from the start
 * scans all of them. Ids grow, so claimed jobs lie below the last one seen. But a job that was put back, or whose
 * transaction committed late, also has an id below the floor. So a claim starts from the beginning as long as that is
 * cheap; otherwise only after twenty times as long as such a scan takes.
 */
export class ClaimFloors {
  readonly #floors = new Map<string, Place>();
  readonly #now: () => number;
  #full = true;
  #startedAt = 0;
  #mayAt = 0;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** The floors for the next claim; none for a scan from the beginning. */
  next(): readonly Place[] {
    this.#startedAt = this.#now();
    this.#full = this.#startedAt >= this.#mayAt;
    return this.#full ? [] : [...this.#floors.values()];
  }

  /** Learns from a claim. True if it was empty, but a scan from the beginning may still find jobs. */
  learn(jobs: readonly Place[]): boolean {
    const now = this.#now();
    if (this.#full) {
      const cost = now - this.#startedAt;
      this.#mayAt = cost <= cheapMs ? now : now + cost * costFactor;
      // Where one late job was found there may be thousands: continue after it, not after the newest.
      for (const { type, lane } of jobs) this.#floors.delete(`${type} ${lane}`);
    }
    for (const { type, lane, id } of jobs) {
      const place = `${type} ${lane}`;
      const known = this.#floors.get(place);
      if (!known || known.id <= id) this.#floors.set(place, { type, lane, id: id + 1 });
    }
    return jobs.length === 0 && !this.#full && now >= this.#mayAt;
  }
}
