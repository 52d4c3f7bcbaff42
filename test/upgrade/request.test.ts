import { createHash } from 'node:crypto';
import { beforeAll, expect, it } from 'vitest';
import { migrate, previewMigration, readSqlFiles, type Database, type SqlFiles } from '../../src/database/index.ts';
import { readCatalogue } from '../../src/database/upgrade/catalogue.ts';
import { Events } from '../../src/events/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { openSession } from '../harness/session.ts';
import { describeSchemas, differences } from './described-schemas.ts';

/** The functions of viewers and applications have parsed bodies, so PostgreSQL refuses changes to the view below them. */
const events = new Events();
const dependants = [
  'backfill_scheduled_job(text, timestamp with time zone[], integer)',
  'cancel_scheduled_run(bigint)',
  'check_and_queue_stale_batch(text, text[])',
  'explain_pair(text, text)',
  'remove_active_subscription(text, text, text)',
  'trigger_scheduled_job(text, jsonb)',
  'upsert_active_subscription(text, text, text)',
  'upsert_active_subscriptions(jsonb, text)',
].map((name) => `function pgfresh.${name}`);

const world = `
  create table public.quote (key text primary key, fetched_at timestamptz);
  insert into pgfresh.sources (name) values ('market');
  insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column, ttl)
    values ('quote', 'market', 'quote', 'fetched_at', '1 minute')`;

let next: SqlFiles;
let fresh: Record<string, unknown>;
let url: string;
let database: Database;
beforeAll(async () => {
  const files = await readSqlFiles();
  const functions = files.functions.map((file) => {
    if (file.name !== 'engine/request/request') return file;
    const text = file.text.replace('null::jsonb as args,', 'null::int as version, null::jsonb as args,');
    expect(text).not.toBe(file.text);
    return { ...file, text, hash: createHash('sha256').update(text).digest('hex') };
  });
  const unlisted = { ...files, functions, manifests: { current: undefined, unrecorded: [] } };
  const installed = openDatabase(await createDatabase({ empty: true }));
  await migrate(installed, { files: unlisted, events });
  next = { ...unlisted, manifests: { current: await readCatalogue(installed), unrecorded: [] } };
  await installed.query(world);
  fresh = await describeSchemas(installed);
  url = await createDatabase();
  database = openDatabase(url);
  await database.query(world);
});

it('an upgrade that changes the view is refused while an object of a user needs one of them', async () => {
  await database.query(`create view public.why as select pgfresh.explain_pair('quote', 'A') as told`);
  const refusal = { code: 'PGF_UPGRADE_BLOCKED' };
  await expect(previewMigration(database, next)).rejects.toMatchObject(refusal);
  await expect(migrate(database, { files: next, events })).rejects.toThrow(
    /view public\.why \(needs .*view pgfresh_engine\.request/,
  );
  await database.query('drop view public.why');
});

it('an upgrade that changes the view makes them anew, with their grants', async () => {
  const viewer = await openSession((await createLogin(url, 'pgfresh_viewer')).url);
  const subscribe = async () =>
    (
      await viewer.query<{ result: string }>(
        `select pgfresh.upsert_active_subscription(null, 'A', 'quote') ->> 'result' as result`,
      )
    )[0]!.result;
  await viewer.query(`set pgfresh.user_id = 'ann'`);
  expect(await subscribe()).toBe('subscribed');
  const { objects } = await migrate(database, { files: next, events });
  expect(objects.replaced).toEqual(expect.arrayContaining([...dependants, 'view pgfresh_engine.request']));
  expect(objects.dropped).toEqual([]);
  expect(differences(await describeSchemas(database), fresh)).toEqual({});
  // The same session, which knew the old ones.
  expect(await subscribe()).toBe('seen');
});
