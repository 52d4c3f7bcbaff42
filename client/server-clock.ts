/** The server's clock, as far as it is known here. */
export class ServerClock {
  /** By how much it is ahead of ours. */
  aheadMs = 0;

  now(): number {
    return Date.now() + this.aheadMs;
  }

  /** The server has said what time it is. */
  set(now: string): void {
    this.aheadMs = Date.parse(now) - Date.now();
  }
}
