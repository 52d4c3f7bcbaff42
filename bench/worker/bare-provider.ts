import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { report, serve } from '../child-side.ts';

// The program of a provider that answers at once and does nothing else. The HTTP server of Node.js, or the market
// example with its meter, would take a share of the two cores that is worth mentioning; a socket takes the least.

const timestamp = new Date().toISOString();
const end = '\r\n\r\n';

const server = createServer({ noDelay: true }, (socket) => {
  let pending = '';
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk) => {
    pending += chunk.toString('latin1');
    for (let at = pending.indexOf(end); at >= 0; at = pending.indexOf(end)) {
      socket.write(answerTo(pending.slice(0, at)));
      pending = pending.slice(at + end.length);
    }
  });
});

function answerTo(request: string): string {
  const path = request.slice(0, request.indexOf(' HTTP/'));
  const symbol = decodeURIComponent(path.slice(path.lastIndexOf('/') + 1));
  const body = `{"symbol":"${symbol}","exchange":"XNAS","currency":"USD","price":227.52,"change":1.2,"changePercent":0.53,"open":226.1,"high":228.9,"low":225.4,"previousClose":226.32,"volume":51234567,"averageVolume":48000000,"marketCap":3456000000000,"timestamp":"${timestamp}"}`;
  return `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}${end}${body}`;
}

server.listen(0, '127.0.0.1');
await once(server, 'listening');
serve({ cpu: () => process.cpuUsage() });
report({ type: 'ready', value: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
