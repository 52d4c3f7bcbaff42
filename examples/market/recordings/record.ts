/**
 * Records what the provider answers, one file a data type, for tests of schemas and tables.
 *
 *   node examples/market/recordings/record.ts
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { HttpRequest } from 'pgfresh';
import { Provider } from '../provider/provider.ts';
import { marketTypes } from '../types/index.ts';

export interface Recording {
  readonly key: string;
  readonly request: HttpRequest;
  readonly status: number;
  readonly contentType: string | null;
  readonly body: unknown;
}

export const recordedAt = new Date('2026-11-16T15:30:00Z');

// One of each exchange. IT has no chief and no website, makes losses and pays nothing.
const keys = ['AAPL', 'IT', 'HSBA.L', '7203.T', 'NVDA.X'];

export async function recordAll(): Promise<Map<string, Recording[]>> {
  const provider = new Provider({
    port: 0,
    seed: 1,
    keys: ['recorder'],
    limit: undefined,
    latencyMs: 0,
    now: () => recordedAt.getTime(),
  });
  const address = await provider.start();
  const { signal } = new AbortController();
  try {
    const recordings = new Map<string, Recording[]>();
    for (const type of marketTypes) {
      const ofType = keys.map(async (key): Promise<Recording> => {
        const context = { key, keyParts: [key], metadata: {}, dataType: type.name, now: recordedAt, signal };
        const request = await type.request!(key, context);
        const url = new URL(request.url, address);
        for (const [name, value] of Object.entries(request.query ?? {})) url.searchParams.set(name, String(value));
        const response = await fetch(url, { headers: { 'x-api-key': 'recorder' } });
        const { status, headers } = response;
        return { key, request, status, contentType: headers.get('content-type'), body: await response.json() };
      });
      recordings.set(type.name, await Promise.all(ofType));
    }
    return recordings;
  } finally {
    await provider.stop();
  }
}

if (import.meta.main) {
  for (const [name, recordings] of await recordAll())
    await writeFile(join(import.meta.dirname, `${name}.json`), `${JSON.stringify(recordings, undefined, 2)}\n`);
}
