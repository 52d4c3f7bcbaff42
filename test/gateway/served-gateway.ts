import { resolveConfig, type GatewayDefinition } from '../../src/config/index.ts';
import type { Events } from '../../src/events/index.ts';
import { Runtime } from '../../src/runtime/index.ts';

/** A process with the role `gateway`. Returns its address. */
export async function serveGateway(url: string, definition: GatewayDefinition, events: Events): Promise<string> {
  const gateway = { anonymous: 'loopback', ...definition } as const;
  const config = resolveConfig({
    config: { databaseUrl: url, port: 0, token: 'the token of the console', gateway },
  });
  const runtime = new Runtime({ config, roles: ['gateway'], events });
  await runtime.start();
  return runtime.address!;
}
