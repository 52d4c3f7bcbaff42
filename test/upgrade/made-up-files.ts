import { createHash } from 'node:crypto';
import { migrate, type Database, type SqlFile, type SqlFiles } from '../../src/database/index.ts';
import { readCatalogue } from '../../src/database/upgrade/catalogue.ts';
import { Events } from '../../src/events/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { describeSchemas } from './described-schemas.ts';

interface MadeUp {
  /** The text of the one functions file. */
  readonly functions: string;
  /** The texts of the numbered files. */
  readonly migrations?: readonly string[];
  readonly version?: string;
}

/** SQL files of a version that does not exist, with their manifest, and what a new installation of them looks like. */
export async function madeUp({ functions, migrations = [], version = '0.1.0' }: MadeUp) {
  const files: SqlFiles = {
    migrations: migrations.map((text, place) => file(`00${place + 1}_made_up`, text)),
    functions: [file('made_up', functions + nothingForEverybody)],
    manifests: { current: undefined, unrecorded: [] },
    version,
    protocol: { own: 1, least: 1 },
  };
  const database = await emptied();
  await migrate(database, { files, events: new Events() });
  const manifests = { current: await readCatalogue(database), unrecorded: [] };
  return { files: { ...files, manifests }, fresh: await describeSchemas(database) };
}

let made: Database | undefined;

/** A database of this module's own, as if it were new: making one takes longer than all that is done in it. */
async function emptied(): Promise<Database> {
  made ??= openDatabase(await createDatabase({ empty: true }));
  await empty(made);
  return made;
}

export async function empty(database: Database): Promise<void> {
  await database.query(
    'drop schema if exists pgfresh, pgfresh_engine, public cascade; create schema public authorization pg_database_owner',
  );
}

// As every file of ours does for its own functions.
const nothingForEverybody = `
  do $$ begin
    if to_regnamespace('pgfresh_engine') is not null then
      revoke all on all routines in schema pgfresh_engine from public;
    end if;
  end $$;
  revoke all on all routines in schema pgfresh from public;`;

const file = (name: string, text: string): SqlFile => ({
  name,
  text,
  hash: createHash('sha256').update(text).digest('hex'),
});
