/** A real gateway process for tests that kill it: `gateway-process.ts <database> <options of the gateway as JSON>`. */
import type { GatewayDefinition } from '../../src/config/index.ts';
import { Events } from '../../src/events/index.ts';
import { serveGateway } from './served-gateway.ts';

const [url = '', definition = '{}'] = process.argv.slice(2);
const address = await serveGateway(url, JSON.parse(definition) as GatewayDefinition, new Events());
process.stdout.write(`${address}\n`);
