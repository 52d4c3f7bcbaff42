import { Events } from '../../src/events/index.ts';
import { serveGateway } from '../../test/gateway/served-gateway.ts';
import { report, serve } from '../child-side.ts';
import { measureMemory } from './memory.ts';

// A gateway process. All viewers come from this machine, so the limits per address are wide.

const [url] = process.argv.slice(2) as [string];
const many = 1_000_000;
const limits = { connections: 19_000, connectionsPerAddress: many, pairsPerUser: many, newPairsPerMinute: many };
const events = new Events();
events.subscribe((event) => {
  if (event.type.endsWith('.failed')) process.stderr.write(`pgfresh: ${JSON.stringify(event)}\n`);
});
const address = await serveGateway(url, { limits }, events);
serve({ memory: measureMemory, cpu: () => process.cpuUsage() });
report({ type: 'ready', value: Number(new URL(address).port) });
