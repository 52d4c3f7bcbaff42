import { rm } from 'node:fs/promises';
import { resolveConfig } from '../../src/config/index.ts';
import { jobRoutes } from '../../src/console/index.ts';
import { HttpServer } from '../../src/http/index.ts';
import { Health, Metrics } from '../../src/watch/index.ts';
import { atEnd } from '../harness/database.ts';
import { temporaryFolder } from '../harness/folder.ts';
import type { ScheduleScene } from '../schedule/scene.ts';

/** A server with the routes of jobs, until the test file ends. Returns its address. */
export async function serveJobs({ db, events }: ScheduleScene, token: string): Promise<string> {
  const dataDir = await temporaryFolder('jobs');
  const server = new HttpServer({
    settings: resolveConfig({ config: { port: 0, dataDir, token } }).settings,
    events,
    health: new Health(),
    metrics: new Metrics(events),
    routes: (app) => jobRoutes(app, { db, events }),
  });
  atEnd(async () => {
    await server.stop();
    await rm(dataDir, { recursive: true });
  });
  await server.start();
  return server.url;
}
