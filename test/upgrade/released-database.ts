import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { statement } from '../harness/server.ts';

const folder = join(import.meta.dirname, 'released');

/** The versions whose schema is kept here. */
export const releases = (await readdir(folder)).toSorted();

/** A file of a released version: `schema` as its `pgfresh migrate --sql` printed it, `world` or `work`. */
export function releasedFile(version: string, file: 'schema' | 'world' | 'work'): Promise<string> {
  return readFile(join(folder, version, `${file}.sql`), 'utf8');
}

/** A database as a released version has left it, with work under way; a new one, or an empty one. */
export async function createReleased(version: string, empty?: string) {
  const url = empty ?? (await createDatabase({ empty: true }));
  // Without what only psql understands.
  await statement(url, (await releasedFile(version, 'schema')).replace('\\set ON_ERROR_STOP on', ''));
  await statement(url, await releasedFile(version, 'world'));
  await statement(url, await releasedFile(version, 'work'));
  return { url, database: openDatabase(url) };
}

/** What nobody but an operator with psql would have granted. */
export const grantedByHand = `
  grant execute on function pgfresh.clock() to public;
  grant select, update (enabled) on pgfresh.sources to public;
  grant all on function pgfresh.pause_source(text, timestamptz, text) to pgfresh_viewer with grant option;
  grant create on schema pgfresh to pgfresh_worker;
  grant usage on sequence pgfresh.lock_token to public;`;
