import type { Link, LinkListener } from './link.ts';
import { protocol, type ServerMessage } from './protocol.ts';

export function openWebSocket(url: string, token: string | undefined, { receive, end }: LinkListener): Link {
  // A browser cannot set headers of a WebSocket, so the token goes into a subprotocol.
  const names = ['pgfresh.v1'];
  if (token !== undefined) names.push(`pgfresh.token.${token}`);
  const socket = new WebSocket(url.replace(/^http/, 'ws'), names);
  let isOpen = true;
  const send: Link['send'] = (message) => {
    if (socket.readyState === socket.OPEN) socket.send(JSON.stringify(message));
  };
  socket.onopen = () => send({ type: 'hello', protocol });
  socket.onmessage = ({ data }) => {
    if (isOpen) receive(JSON.parse(data as string) as ServerMessage);
  };
  socket.onclose = ({ code }) => {
    if (isOpen) end(code);
  };
  return {
    send,
    close() {
      isOpen = false;
      socket.close();
    },
  };
}
