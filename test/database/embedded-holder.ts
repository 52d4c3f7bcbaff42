/**
 * A pgfresh process to be hurt by a test: starts the server in the folder given as the first argument, reports on
 * stdout one line of JSON, and then stays until it is told to stop or killed. SIGINT is ignored, so that what Ctrl-C
 * does to the server alone can be seen.
 */
import { EmbeddedServer } from '../../src/database/embedded/index.ts';
import { asPgfreshError } from '../../src/errors/index.ts';
import { Events } from '../../src/events/index.ts';

process.on('SIGINT', () => {});
const server = new EmbeddedServer({ dataDir: process.argv[2]!, events: new Events() });
try {
  await server.start();
  report({ url: server.url, pid: server.pid });
} catch (error) {
  const { code, message, values } = asPgfreshError(error);
  report({ code, message, values });
}
for await (const _ of process.stdin) break;
await server.stop();

function report(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}
