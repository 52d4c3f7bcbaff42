import { resolveConfig } from '../../src/config/index.ts';
import { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { Gateway } from '../../src/gateway/index.ts';
import { HttpServer } from '../../src/http/index.ts';
import { Health, Metrics } from '../../src/watch/index.ts';
import { report, serve } from '../child-side.ts';
import { measureMemory } from './memory.ts';

// The program of a gateway's process. All viewers come from this machine, so the limits of one address are wide.

const [url] = process.argv.slice(2) as [string];
const many = 1_000_000;
const { settings, gateway: gatewaySettings } = resolveConfig({
  config: {
    port: 0,
    token: 'the token of the console',
    gateway: {
      anonymous: 'loopback',
      limits: { connections: 19_000, connectionsPerAddress: many, pairsPerUser: many, newPairsPerMinute: many },
    },
  },
});
const events = new Events();
events.subscribe((event) => {
  if (event.type.endsWith('.failed')) process.stderr.write(`pgfresh: ${JSON.stringify(event)}\n`);
});
const db = new Database({ url, events, applicationName: 'pgfresh bench' });
const gateway = new Gateway({ db, listenUrl: url, events, settings: gatewaySettings });
const http = new HttpServer({
  settings,
  events,
  health: new Health(),
  metrics: new Metrics(events),
  doors: [gateway.door],
});
await gateway.start();
await http.start();
serve({ memory: measureMemory, cpu: () => process.cpuUsage() });
report({ type: 'ready', value: Number(new URL(http.url).port) });
