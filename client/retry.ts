/** How long to wait after so many failures in a row. Not all clients of a server come back at the same moment. */
export function pauseAfter(failures: number): number {
  const firstPauseMs = 500;
  const longestPauseMs = 30_000;
  return Math.random() * Math.min(longestPauseMs, firstPauseMs * 2 ** failures);
}

/**
 * A network that breaks WebSockets lets requests through, and an answer to these says why somebody is refused. Where a
 * WebSocket has worked, the network is not to blame so soon.
 */
export function isTimeForEvents(failures: number, hadWebSocket: boolean): boolean {
  return failures >= (hadWebSocket ? 6 : 2) && failures % 2 === 0;
}
