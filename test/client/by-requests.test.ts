import { once } from 'node:events';
import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished, vi } from 'vitest';
import { clientOf, look, useGateway } from './client-scene.ts';

const live = useGateway();

it('a client uses an event stream where WebSockets are broken', async () => {
  vi.spyOn(Math, 'random').mockReturnValue(0);
  await live.scene.quote('AAPL', 1);
  await live.scene.quote('MSFT', 5);
  const between = await withoutWebSockets(live.url);
  const client = await clientOf('ada', { url: between.url });
  const { prices, stop } = look(client, 'aapl');
  await expect.poll(prices).toEqual([1]);
  await live.scene.quote('AAPL', 2);
  await expect.poll(prices).toEqual([1, 2]);
  expect(live.running.seen).toContainEqual({ type: 'gateway.opened', transport: 'events' });
  // The requests for the pair and its refresh arrive in order.
  expect(await client.refreshNow('quote', 'NVDA')).toBeTypeOf('string');
  expect(between.most).toBe(1);
  // A message that the server did not accept is repeated.
  between.refusesNext = true;
  expect((await client.get('quote', 'MSFT')).data).toMatchObject({ price: 5 });
  expect(between.refusesNext).toBe(false);
  stop();
  await expect.poll(() => live.scene.demand()).toEqual([]);
});

interface Between {
  readonly url: string;
  /** The maximum number of concurrent messages. */
  most: number;
  /** Whether the next message is rejected. */
  refusesNext: boolean;
}

/** A slow proxy that does not support WebSockets. */
async function withoutWebSockets(target: string): Promise<Between> {
  let underway = 0;
  const server = createServer((incoming, outgoing) => {
    if (incoming.method === 'GET') return passOn(incoming, outgoing);
    underway += 1;
    between.most = Math.max(between.most, underway);
    outgoing.on('close', () => (underway -= 1));
    if (!between.refusesNext) return void setTimeout(() => passOn(incoming, outgoing), 20);
    between.refusesNext = false;
    return void outgoing.writeHead(503).end();
  });
  const passOn = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    const { host: _host, ...headers } = incoming.headers;
    const sent = request(`${target}${incoming.url}`, { method: incoming.method!, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode!, answer.headers);
      answer.pipe(outgoing);
      outgoing.on('close', () => sent.destroy());
    });
    sent.on('error', () => outgoing.destroy());
    incoming.pipe(sent);
  };
  server.on('upgrade', (_, socket) => socket.destroy());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });
  const between = { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, most: 0, refusesNext: false };
  return between;
}
