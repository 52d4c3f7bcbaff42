/** The cost of a call so far: requests sent and bytes received. */
export class Cost {
  calls = 0;
  wireBytes = 0;
  /** The cost has been reported; later bytes are charged to another call. */
  isSettled = false;

  /** Moves the cost of another call to this one. */
  absorb(other: Cost): void {
    this.calls += other.calls;
    this.wireBytes += other.wireBytes;
    other.calls = 0;
    other.wireBytes = 0;
  }
}
