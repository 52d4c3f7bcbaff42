/** The pause after a number of failures in a row. Random, so that clients do not all reconnect at the same moment. */
export function pauseAfter(failures: number): number {
  const firstPauseMs = 500;
  const longestPauseMs = 30_000;
  return Math.random() * Math.min(longestPauseMs, firstPauseMs * 2 ** failures);
}

/**
 * Whether to try an event stream. A network that breaks WebSockets lets requests through, and their response tells why
 * a client is refused. After a WebSocket has worked, it takes more failures.
 */
export function isTimeForEvents(failures: number, hadWebSocket: boolean): boolean {
  return failures >= (hadWebSocket ? 6 : 2) && failures % 2 === 0;
}
