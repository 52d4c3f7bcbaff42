/** Writes the generated files in `docs/` and `sql/`, or with `--check` fails if one is out of date. */
import { readFile, rm, writeFile } from 'node:fs/promises';
import { Database, EmbeddedServer, manifestText, migrate, readSqlFiles } from '../src/database/index.ts';
import { Events } from '../src/events/index.ts';
import { temporaryFolder } from '../test/harness/folder.ts';
import { architecturePage } from './architecture-page.ts';
import { cliPage } from './cli-page.ts';
import { clientPage } from './client-page.ts';
import { configurationPage } from './configuration-page.ts';
import { errorsPage } from './errors-page.ts';
import { faultsPage } from './faults-page.ts';
import { sqlPage } from './sql-page.ts';

/** Pages generated from code alone. */
export const generatedPages: Readonly<Record<string, () => string>> = {
  'docs/internals/architecture.md': architecturePage,
  'docs/reference/cli.md': cliPage,
  'docs/reference/client-api.md': clientPage,
  'docs/reference/errors.md': errorsPage,
  'docs/guides/market-faults.md': faultsPage,
  'docs/reference/configuration.md': configurationPage,
};

/** Files generated from a new database, on a temporary server. */
async function databasePages(): Promise<Record<string, string>> {
  const dataDir = await temporaryFolder('docs');
  const events = new Events();
  const server = new EmbeddedServer({ dataDir, events, fsync: false });
  try {
    await server.start();
    const database = new Database({ url: server.url, events, applicationName: 'pgfresh docs' });
    await migrate(database, { files: await readSqlFiles(), events });
    const pages = {
      'sql/manifest.json': await manifestText(database),
      'docs/reference/sql.md': await sqlPage(database),
    };
    await database.close();
    return pages;
  } finally {
    await server.stop();
    await rm(dataDir, { recursive: true, force: true });
  }
}

async function main(check: boolean): Promise<void> {
  const written = Object.entries(generatedPages).map(([path, write]) => [path, write()] as const);
  for (const [path, page] of [...written, ...Object.entries(await databasePages())]) {
    const current = await readFile(path, 'utf8').catch(() => '');
    if (current === page) continue;
    if (check) throw new Error(`${path} is not current; run "npm run docs"`);
    await writeFile(path, page);
    console.log(`wrote ${path}`);
  }
}

if (process.argv[1] === import.meta.filename) await main(process.argv.includes('--check'));
