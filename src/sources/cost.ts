/** What a call has cost so far: requests that were sent, and bytes that came. */
export class Cost {
  calls = 0;
  wireBytes = 0;
  /** It was told; later bytes are charged to another call. */
  isSettled = false;

  /** Takes over what another one has gathered. */
  absorb(other: Cost): void {
    this.calls += other.calls;
    this.wireBytes += other.wireBytes;
    other.calls = 0;
    other.wireBytes = 0;
  }
}
