import { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { Planner } from '../../src/planner/index.ts';
import { Worker } from '../../src/worker/index.ts';
import { serveGateway } from '../../test/gateway/served-gateway.ts';
import { report, serve } from '../child-side.ts';
import type { Plan } from './plan.ts';
import { configFor } from './types.ts';

// A process with a gateway, a planner and a worker.

const [url, provider, plan] = process.argv.slice(2) as [string, string, string];
const many = 1_000_000;
const limits = { connectionsPerAddress: many, pairsPerUser: many, newPairsPerMinute: many };
const { sources, dataTypes = [], settings } = configFor(JSON.parse(plan) as Plan, provider);
const events = new Events();
const db = new Database({ url, events, applicationName: 'pgfresh bench' });

const planner = new Planner({ db, events, tickMs: settings.tickInterval });
const worker = new Worker({ db, url, listenUrl: url, events, sources, dataTypes, concurrency: 100, drainMs: 5_000 });
await planner.start();
await worker.start();
const address = await serveGateway(url, { limits }, events);
serve({});
report({ type: 'ready', value: Number(new URL(address).port) });
