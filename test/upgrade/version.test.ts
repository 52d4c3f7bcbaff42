import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { migrate, pendingMigrations, type Database, type SqlFiles } from '../../src/database/index.ts';
import { compareVersions } from '../../src/database/upgrade/index.ts';
import { Events } from '../../src/events/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { empty, madeUp } from './made-up-files.ts';

const build = async (version: string, answer: number) =>
  (
    await madeUp({
      version,
      functions: `create or replace function pgfresh.answer() returns int language sql as 'select ${answer}';`,
    })
  ).files;

let database: Database;
beforeAll(async () => {
  database = openDatabase(await createDatabase({ empty: true }));
});
beforeEach(() => empty(database));
const install = (files: SqlFiles) => migrate(database, { files, events: new Events() });
const answer = async () => (await database.query<{ answer: number }>('select pgfresh.answer()'))[0]!.answer;

describe('functions are not replaced by those of', () => {
  it('an older version, which changed no numbered file', async () => {
    const [old, next] = [await build('0.1.0', 1), await build('0.2.0', 2)];
    await install(old);
    await install(next);
    const refusal = {
      code: 'PGF_MIGRATION_NEWER',
      exit: 5,
      message: expect.stringContaining('version 0.2.0') as string,
    };
    await expect(install(old)).rejects.toMatchObject(refusal);
    // Also a process that does not migrate is told so, and not to migrate.
    await expect(pendingMigrations(database, old)).rejects.toMatchObject(refusal);
    expect(await answer()).toBe(2);
  });

  it('an older version that was never here', async () => {
    await install(await build('0.2.0', 2));
    await expect(install(await build('0.1.5', 1))).rejects.toMatchObject({ code: 'PGF_MIGRATION_NEWER' });
    expect(await answer()).toBe(2);
  });

  it('a build of the same version that was replaced, until somebody says so', async () => {
    const [old, next] = [await build('0.1.0', 1), await build('0.1.0', 2)];
    await install(old);
    await install(next);
    const refusal = { code: 'PGF_BUILD_REPLACED', exit: 5 };
    await expect(install(old)).rejects.toMatchObject(refusal);
    await expect(pendingMigrations(database, old)).rejects.toMatchObject(refusal);
    expect(await answer()).toBe(2);
    await database.query('delete from pgfresh_engine.installation');
    await install(old);
    expect(await answer()).toBe(1);
  });
});

it('functions of an earlier version come back with a later one', async () => {
  await install(await build('0.1.0', 1));
  await install(await build('0.2.0', 2));
  await install(await build('0.2.1', 1));
  expect(await answer()).toBe(1);
});

it('two versions with the same functions run side by side', async () => {
  await install(await build('0.2.0', 1));
  expect(await pendingMigrations(database, await build('0.1.0', 1))).toEqual([]);
});

it('versions are ordered as semver.org says', () => {
  const ordered = ['0.9.9', '0.10.0-alpha', '0.10.0-alpha.2', '0.10.0-alpha.10', '0.10.0-beta', '0.10.0', '1.0.0'];
  const shuffled = ordered.toReversed();
  expect(shuffled.toSorted(compareVersions)).toEqual(ordered);
  expect(compareVersions('1.0.0+a', '1.0.0+b')).toBe(0);
});
