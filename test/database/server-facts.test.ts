import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { readServerFacts, requireFit, type ServerFacts } from '../../src/database/server-facts.ts';
import { createDatabase } from '../harness/database.ts';
import { Proxy } from '../harness/proxy.ts';

let url = '';
beforeAll(async () => {
  url = await createDatabase({ empty: true });
});

describe('what makes a server unfit', () => {
  const fit: ServerFacts = {
    address: 'db/app',
    version: '15.0',
    major: 15,
    standby: false,
    user: 'app',
    transactionPooler: false,
  };

  it('is not the oldest version that is supported, nor this one', async () => {
    requireFit(fit);
    requireFit(await readServerFacts(url));
  });

  it.each<[string, string, Partial<ServerFacts>]>([
    ['PGF_DATABASE_TOO_OLD', 'db/app is version 14.20', { major: 14, version: '14.20' }],
    ['PGF_DATABASE_STANDBY', 'db/app is a standby', { standby: true }],
  ])('%s', (code, message, facts) => {
    const refused = expect.objectContaining({ code, message: expect.stringContaining(message) as string }) as Error;
    expect(() => requireFit({ ...fit, ...facts })).toThrow(refused);
  });
});

it('says that a server does not answer, also when it let us in', async () => {
  const { proxy, url: far } = await Proxy.before(url);
  onTestFinished(() => proxy.close());
  proxy.judge = (chunk) => (chunk.includes('server_version_num') ? 'hold' : 'pass');
  await expect(readServerFacts(far, 100)).rejects.toMatchObject({ code: 'PGF_DATABASE_UNREACHABLE' });
});

/** Gives every session the process number 1, as a pooler gives numbers of its own. */
function withOwnNumbers(chunk: Buffer): Buffer {
  const copy = Buffer.from(chunk);
  const keyData = copy.indexOf('K\0\0\0\x0c', 0, 'latin1');
  if (keyData >= 0) copy.writeInt32BE(1, keyData + 5);
  return copy;
}

/** Has every session of the server answer with the same number: a row of one column with digits. */
function withOneSession(chunk: Buffer): Buffer {
  const row = /(?<=D\0{3}.\0.\0{3}.)\d{2,}(?=C\0)/s;
  return Buffer.from(
    withOwnNumbers(chunk)
      .toString('latin1')
      .replace(row, (pid) => '7'.repeat(pid.length)),
    'latin1',
  );
}

describe('a transaction pooler', () => {
  it.each<[string, Proxy['rewrite'], boolean]>([
    ['is none where the number is the true one', (chunk) => chunk, false],
    ['is none where each client keeps its session', withOwnNumbers, false],
    ['is one where two clients are given the same session', withOneSession, true],
  ])('%s', async (_name, rewrite, expected) => {
    const { proxy, url: far } = await Proxy.before(url);
    onTestFinished(() => proxy.close());
    proxy.rewrite = (chunk, direction) => (direction === 'to client' ? rewrite(chunk, direction) : chunk);
    expect((await readServerFacts(far)).transactionPooler).toBe(expected);
  });
});

describe('TLS', () => {
  it('demanded by the server is said to be so, with the file to look at', async () => {
    const said = 'no pg_hba.conf entry for host "127.0.0.1", user "u", database "d", no encryption';
    const fields = Buffer.from(`SFATAL\0VFATAL\0C28000\0M${said}\0\0`);
    const head = Buffer.alloc(5, 'E');
    head.writeInt32BE(fields.length + 4, 1);
    const server = createServer((socket) => {
      socket.on('error', () => {}).once('data', () => socket.end(Buffer.concat([head, fields])));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    await expect(readServerFacts(`postgres://u@127.0.0.1:${port}/d`)).rejects.toMatchObject({
      code: 'PGF_DATABASE_TLS',
      message: expect.stringContaining(said) as string,
      next: expect.stringContaining('hostssl in its pg_hba.conf') as string,
    });
  });

  it.each(['sslrootcert=/nope.pem', 'sslmode=verify-ca', 'sslmode=verify-full&sslcert=/nope.pem'])(
    'with %s is refused before anything is sent',
    async (parameters) => {
      await expect(readServerFacts(`postgres://u@127.0.0.1:1/d?${parameters}`)).rejects.toMatchObject({
        code: 'PGF_DATABASE_TLS',
        next: expect.stringContaining('sslrootcert') as string,
      });
    },
  );

  it('is not blamed for an address that makes no sense', async () => {
    await expect(readServerFacts('postgres://127.0.0.1:1/%E0')).rejects.toMatchObject({
      code: 'PGF_DATABASE_URL_INVALID',
    });
  });
});
