import { readFile } from 'node:fs/promises';
import pg from 'pg';
import type { DevContext, DevSupport } from 'pgfresh';
import { ProviderProcess } from './provider/process.ts';
import { builtBoard } from './site/board.ts';
import { Site } from './site/site.ts';
import { Viewers } from './viewers.ts';

// Fewer, or none, to see what your own page costs.
const viewerCount = Number(process.env['MARKET_VIEWERS'] ?? 60);

/** What `npm start` needs besides pgfresh: the provider in its own process, the tables, and viewers. */
export async function startMarket({ databaseUrl }: DevContext): Promise<DevSupport> {
  const [provider, folder] = await Promise.all([ProviderProcess.start(), builtBoard(), applySchema(databaseUrl)]);
  const site = await Site.open({ databaseUrl, providerUrl: provider.url, folder });
  // Errors are not theirs to report: pgfresh itself reports a lost database.
  const viewers = new Viewers({ url: databaseUrl, seed: 1, count: viewerCount });
  const faults = `${provider.url}/admin/faults`;
  return {
    baseUrls: { market: provider.url },
    notes: {
      Provider: `${provider.url}, 500 symbols, 300 calls per minute`,
      Viewers: `${viewerCount}, who come and go`,
      Watch: 'npx pgfresh top',
      'Break it': `curl ${faults} -d '{"kind":"error_500"}'`,
      'Mend it': `curl -X DELETE ${faults}; npx pgfresh source resume market`,
    },
    page: (request) => site.answer(request),
    ready: () => viewers.start(),
    stop: async () => {
      await viewers.stop();
      await site.close();
      await provider.stop();
    },
  };
}

// The same relative path from here and from the build of this file.
const schema = new URL('../../examples/market/schema.sql', import.meta.url);

async function applySchema(url: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    await client.query(await readFile(schema, 'utf8'));
  } finally {
    await client.end();
  }
}
