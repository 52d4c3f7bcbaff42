/** An estimate of the server's clock. */
export class ServerClock {
  /** How far it is ahead of the local clock. */
  aheadMs = 0;

  now(): number {
    return Date.now() + this.aheadMs;
  }

  /** Sets the clock from a message of the server. */
  set(now: string): void {
    this.aheadMs = Date.parse(now) - Date.now();
  }
}
