import { resolveConfig, type GatewayDefinition } from '../../src/config/index.ts';
import { Database } from '../../src/database/index.ts';
import type { Events } from '../../src/events/index.ts';
import { Gateway } from '../../src/gateway/index.ts';
import { HttpServer } from '../../src/http/index.ts';
import { Health, Metrics } from '../../src/watch/index.ts';

/** Everything of a process with the role `gateway` that clients talk to. Returns its address. */
export async function serveGateway(url: string, definition: GatewayDefinition, events: Events): Promise<string> {
  const { settings, gateway: gatewaySettings } = resolveConfig({
    config: { port: 0, token: 'the token of the console', gateway: { anonymous: 'loopback', ...definition } },
  });
  const db = new Database({ url, events, applicationName: 'pgfresh gateway' });
  const gateway = new Gateway({ db, url, listenUrl: url, events, settings: gatewaySettings });
  const http = new HttpServer({
    settings,
    events,
    health: new Health(),
    metrics: new Metrics(events),
    doors: [gateway.door],
  });
  await gateway.start();
  await http.start();
  return http.url;
}
