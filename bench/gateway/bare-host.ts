import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type WebSocket, WebSocketServer } from 'ws';
import { report, serve } from '../child-side.ts';
import { now } from '../clock.ts';
import { want } from './conversation.ts';
import { measureMemory } from './memory.ts';

// A server of nothing but `ws`: it sends every client the gateway's messages and keeps no state.

const [together, ...told] = process.argv.slice(2) as [string, string, string, string];
const [welcome, ...snapshot] = told.map((text) => Buffer.from(text));
const asText = { binary: false };

const server = createServer();
const webSockets = new WebSocketServer({ server, perMessageDeflate: false, clientTracking: false });
const audience = new Set<WebSocket>();
webSockets.on('connection', (webSocket) => {
  webSocket.on('message', (data: Buffer) => {
    const text = data.toString('utf8');
    if (text === want(together)) audience.add(webSocket);
    for (const message of text.startsWith('{"type":"want"') ? snapshot : [welcome!]) webSocket.send(message, asText);
  });
  webSocket.on('close', () => audience.delete(webSocket));
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');

serve({
  memory: measureMemory,
  cpu: () => process.cpuUsage(),
  /** Sends the same bytes to all viewers of the one pair. Resolves with the start time. */
  broadcast: (text: string) => {
    const message = Buffer.from(text);
    const began = now();
    for (const webSocket of audience) webSocket.send(message, asText);
    return began;
  },
});
report({ type: 'ready', value: (server.address() as AddressInfo).port });
