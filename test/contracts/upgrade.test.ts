import { expect, test } from 'vitest';
import { migrate, readSqlFiles } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { statement } from '../harness/server.ts';
import { describeSchemas, differences } from '../upgrade/described-schemas.ts';
import { createReleased, grantedByHand, releasedFile, releases } from '../upgrade/released-database.ts';

test.each(releases)('contract 29: %s with data, upgraded, has the catalogue of a new installation', async (version) => {
  const url = await createDatabase();
  await statement(url, await releasedFile(version, 'world'));
  const fresh = await describeSchemas(openDatabase(url));
  expect(Object.keys(fresh).length).toBeGreaterThan(500);

  const { database } = await createReleased(version);
  await database.query(grantedByHand);
  await migrate(database, { files: await readSqlFiles(), events: new Events() });
  expect(differences(await describeSchemas(database), fresh)).toEqual({});
});
