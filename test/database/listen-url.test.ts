import { expect, it } from 'vitest';
import { requireListening } from '../../src/database/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';

const url = await createDatabase();
const db = openDatabase(url);

it('what is notified arrives at a good listenUrl', async () => {
  await expect(requireListening(db, url)).resolves.toBeUndefined();
});

it.each<[string, () => string | Promise<string>, RegExp]>([
  ['that is no address', () => 'nonsense', /^Cannot listen on listenUrl: it is not a PostgreSQL address: Invalid URL/],
  ['where nothing answers', () => 'postgres://ann:s3cret@127.0.0.1:1/x', /^Cannot listen on listenUrl: .*ECONNREFUSED/],
  ['of another database', () => createDatabase(), /nothing arrives at .*, which is another database or behind/],
])('a listenUrl %s is refused, and the error names the setting', async (_, address, message) => {
  await expect(requireListening(db, await address())).rejects.toMatchObject({
    code: 'PGF_LISTEN_URL',
    message: expect.stringMatching(message) as string,
    next: expect.stringContaining('PGFRESH_LISTEN_URL') as string,
  });
});
