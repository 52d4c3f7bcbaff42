import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';

/** A free loopback port. Another program may take it first, so the server may have to ask again. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

export function saysPortTaken(said: string): boolean {
  return /could not bind|could not create any TCP\/IP sockets/.test(said);
}
