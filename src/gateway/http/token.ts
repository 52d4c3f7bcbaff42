import type { IncomingMessage } from 'node:http';

/** The WebSocket subprotocol that clients request. */
export const subprotocol = 'pgfresh.v1';
const tokenPrefix = 'pgfresh.token.';

/** The client's token, from the Authorization header or, as browsers cannot set headers of a WebSocket, a subprotocol. */
export function clientToken({ headers }: IncomingMessage): string | undefined {
  const bearer = /^Bearer (\S+)$/i.exec(headers.authorization ?? '')?.[1];
  if (bearer !== undefined) return bearer;
  const protocols = headers['sec-websocket-protocol']?.split(',').map((name) => name.trim());
  return protocols?.find((name) => name.startsWith(tokenPrefix))?.slice(tokenPrefix.length);
}
