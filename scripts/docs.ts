/** Writes what comes from the code, in `docs/` and `sql/`, or with `--check` fails if something is not current. */
import { readFile, rm, writeFile } from 'node:fs/promises';
import { settingNames, settings } from '../src/config/index.ts';
import { Database, EmbeddedServer, manifestText, migrate, readSqlFiles } from '../src/database/index.ts';
import { errorTable, exitCodes } from '../src/errors/index.ts';
import { Events } from '../src/events/index.ts';
import { temporaryFolder } from '../test/harness/folder.ts';
import { architecturePage } from './architecture-page.ts';
import { clientPage } from './client-page.ts';
import { faultsPage } from './faults-page.ts';
import { sqlPage } from './sql-page.ts';

/** The pages that need nothing but the code. */
export const generatedPages: Readonly<Record<string, () => string>> = {
  'docs/internals/architecture.md': architecturePage,
  'docs/reference/client-api.md': clientPage,
  'docs/reference/errors.md': errorsPage,
  'docs/guides/market-faults.md': faultsPage,
  'docs/reference/configuration.md': settingsPage,
};

function errorsPage(): string {
  const codes = Object.entries(errorTable).map(
    ([code, { says, next, exit }]) => `## ${code}\n\n${says}\n\n**Next:** ${next}\n\nExit code: ${exit}.\n`,
  );
  return `# Errors

Every error that pgfresh reports has a code. Codes are stable: they keep their meaning and are never reused.
Words in braces are filled in. \`--debug\` shows where an error came from; \`--json\` prints it as \`{"error": {"code", "message", "next"}}\`.

Exit codes: 0 done, ${exitCodes.failure} failed, ${exitCodes.usage} wrong command line, ${exitCodes.config} wrong configuration, ${exitCodes.database} database not usable, ${exitCodes.newer} database newer than this pgfresh.

${codes.join('\n')}`;
}

function settingsPage(): string {
  const rows = settingNames.map((name) => {
    const { about, env, flag, default: fallback } = settings[name];
    const shown =
      fallback === undefined || (Array.isArray(fallback) && fallback.length === 0) ? '–' : `\`${String(fallback)}\``;
    return `| \`${name}\` | \`${env}\` | \`${flag.split(' ', 1)[0]}\` | ${shown} | ${about} |`;
  });
  return `# Settings

A setting is taken from its flag, else from its environment variable, else from \`pgfresh.config.ts\`, else it has its default.
\`pgfresh config\` shows every value and where it came from, with secrets hidden.

| in the file | environment | flag | default | what it is |
|---|---|---|---|---|
${rows.join('\n')}

\`\`\`ts
// pgfresh.config.ts
import { defineConfig } from 'pgfresh';

export default defineConfig({
  port: 4500,
  statementTimeout: '10s',
});
\`\`\`

Times are numbers of milliseconds or texts such as \`250ms\`, \`30s\`, \`15m\`, \`6h\`, \`1d\`.

The file also has \`sources\` and \`dataTypes\`: [registry.md](../internals/registry.md), \`jobs\`: [scheduling.md](../guides/scheduling.md#a-job-in-the-configuration), and \`gateway\`, which says who may connect to it: [access.md](../guides/access.md). \`dev\` starts what \`pgfresh dev\` needs besides: [sources.md](../guides/sources.md#a-fake-source-for-development).
`;
}

/** What is written from a new database, of a server that ends with it. */
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
