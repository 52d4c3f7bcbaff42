import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, SignJWT, type CryptoKey } from 'jose';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { resolveConfig } from '../../src/config/index.ts';
import { examineGatewaySecret } from '../../src/gateway/index.ts';
import { atEnd } from '../harness/database.ts';
import { LiveClient } from './live-client.ts';
import { LiveScene, secret, tokenOf, type RunningGateway } from './live-scene.ts';

let scene: LiveScene;
let running: RunningGateway;
beforeAll(async () => {
  scene = await LiveScene.open();
});
beforeEach(async () => {
  await scene.clear();
  running = await scene.gateway();
});

const open = (headers: Record<string, string>, protocols: string[] = [], to = running) =>
  LiveClient.open(to.http.url, { headers, protocols });
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
const refusedWith = (status: number, code: string) => ({ status, code });

describe('a token', () => {
  it('is read from a header, or from the subprotocols of a browser', async () => {
    const token = await tokenOf('ada');
    for (const client of [await open(bearer(token)), await open({}, ['pgfresh.v1', `pgfresh.token.${token}`])]) {
      client.say({ type: 'hello', protocol: 1 });
      expect(await client.next('welcome')).toMatchObject({ user: 'ada' });
    }
  });

  it.each([
    ['none', async () => ({})],
    ['not one', async () => bearer('nonsense')],
    ['that has expired', async () => bearer(await tokenOf('ada', { expires: new Date(Date.now() - 1_000) }))],
    ['of another secret', async () => bearer(await tokenOf('ada', { by: `${secret} or not` }))],
    ['without an end', async () => bearer(await signed((jwt) => jwt.setSubject('ada')))],
    ['without a user', async () => bearer(await signed((jwt) => jwt.setExpirationTime('1h')))],
    ['of a user whose name is not one', async () => bearer(await tokenOf('a\nb'))],
    ['that is too long', async () => bearer(await tokenOf('ada', { claims: { more: 'x'.repeat(9_000) } }))],
    ['that is not signed', async () => bearer(unsigned({ sub: 'ada', exp: 2e9 }))],
    [
      'of another algorithm',
      async () => bearer(await signed((jwt) => jwt.setSubject('ada').setExpirationTime('1h'), 'HS512')),
    ],
    ['of the console', async () => bearer('the-token-of-the-console')],
  ])('%s is refused before the connection is made', async (_, headers) => {
    await expect(open(await headers())).rejects.toMatchObject(refusedWith(401, 'PGF_LIVE_TOKEN'));
  });

  it('that expires ends the connection, unless a new one was sent', async () => {
    // Late enough for both to arrive in time, even on a busy machine.
    const soon = new Date(Date.now() + 5_000);
    const [ada, ben] = [
      await open(bearer(await tokenOf('ada', { expires: soon }))),
      await open(bearer(await tokenOf('ben', { expires: soon }))),
    ];
    for (const client of [ada, ben]) {
      client.say({ type: 'hello', protocol: 1 });
      expect(Date.parse((await client.next('welcome'))['expires_at'] as string)).toBeLessThanOrEqual(soon.getTime());
    }
    ben.say({ type: 'auth', token: await tokenOf('ben') });
    await ben.next('authenticated');
    expect(await ada.next('error')).toMatchObject({ code: 'PGF_LIVE_TOKEN' });
    expect(await ada.closed).toEqual({ code: 4401, reason: 'PGF_LIVE_TOKEN' });
    expect(await ben.isQuiet()).toBe(true);
  });

  it('of another user is not accepted as the new one', async () => {
    const client = await running.greet('ada');
    client.say({ type: 'auth', token: await tokenOf('ben') });
    expect(await client.next('error')).toMatchObject({ code: 'PGF_LIVE_TOKEN' });
    expect((await client.closed).code).toBe(4401);
  });
});

describe('keys from a JWKS endpoint', () => {
  it('verify only tokens signed with them, and never serve as a secret', async () => {
    const { publicKey, privateKey } = await generateKeyPair('ES256', { extractable: true });
    const jwk = { ...(await exportJWK(publicKey)), kid: 'one', alg: 'ES256' };
    const server = createServer((_, response) => response.end(JSON.stringify({ keys: [jwk] })));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    atEnd(async () => void (await once(server.close(), 'close')));
    const jwksUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/keys`;
    const gateway = await scene.gateway({ jwt: { jwksUrl, issuer: 'login', audience: 'app' } });
    const of = (key: CryptoKey, issuer = 'login', audience = 'app') =>
      new SignJWT()
        .setProtectedHeader({ alg: 'ES256', kid: 'one' })
        .setSubject('ada')
        .setIssuer(issuer)
        .setAudience(audience)
        .setExpirationTime('1h')
        .sign(key);
    const client = await open(bearer(await of(privateKey)), [], gateway);
    client.say({ type: 'hello', protocol: 1 });
    await client.next('welcome');
    const { privateKey: forger } = await generateKeyPair('ES256');
    // A public key used as a secret would be known to everyone.
    const confused = await new SignJWT()
      .setProtectedHeader({ alg: 'HS256', kid: 'one' })
      .setSubject('ada')
      .setIssuer('login')
      .setAudience('app')
      .setExpirationTime('1h')
      .sign(new TextEncoder().encode(JSON.stringify(jwk)));
    for (const token of [
      await of(forger),
      await of(privateKey, 'else'),
      await of(privateKey, 'login', 'else'),
      confused,
    ])
      await expect(open(bearer(token), [], gateway)).rejects.toMatchObject(refusedWith(401, 'PGF_LIVE_TOKEN'));
    server.closeAllConnections();
  });
});

describe('anonymous clients', () => {
  it('are refused unless the configuration allows them', async () => {
    const [local, all] = [
      await scene.gateway({ anonymous: 'loopback' }),
      await scene.gateway({ anonymous: 'everybody' }),
    ];
    const proxied = { 'x-forwarded-for': '203.0.113.9' };
    await expect(open({})).rejects.toMatchObject(refusedWith(401, 'PGF_LIVE_TOKEN'));
    await expect(open(proxied, [], local)).rejects.toMatchObject(refusedWith(401, 'PGF_LIVE_TOKEN'));
    for (const client of [await open({}, [], local), await open({}, [], all), await open(proxied, [], all)]) {
      client.say({ type: 'hello', protocol: 1 });
      expect(await client.next('welcome')).toMatchObject({
        user: expect.stringMatching(/^anonymous:/) as string,
        expires_at: null,
      });
    }
  });

  it('cannot become a user with a wrong token', async () => {
    const local = await scene.gateway({ anonymous: 'loopback' });
    await expect(open(bearer('nonsense'), [], local)).rejects.toMatchObject(refusedWith(401, 'PGF_LIVE_TOKEN'));
  });
});

describe('a page', () => {
  it.each([
    ['of the server itself', async () => running.http.url, true],
    ['of an allowed site', async () => 'https://app.example.com', true],
    ['of another site', async () => 'https://evil.example.com', false],
    ['of nowhere', async () => 'null', false],
  ])('%s', async (_, origin, allowed) => {
    const gateway = await scene.gateway({ origins: ['https://app.example.com'] });
    const own = (await origin()) === running.http.url ? gateway.http.url : await origin();
    const opening = open({ ...bearer(await tokenOf('ada')), origin: own }, [], gateway);
    if (allowed) await (await opening).close();
    else await expect(opening).rejects.toMatchObject(refusedWith(403, 'PGF_LIVE_ORIGIN'));
  });

  it('reaches the server only under one of its own names', async () => {
    const headers = { ...bearer(await tokenOf('ada')), host: 'rebound.example.com' };
    await expect(open(headers)).rejects.toMatchObject(refusedWith(403, 'PGF_HTTP_HOST'));
  });
});

describe('authorize', () => {
  const pairs = [
    ['quote', 'MINE'],
    ['quote', 'YOURS'],
    ['quote', 'THROWS'],
    ['quote', 'WORD'],
  ];

  it('decides each pair by its key as the registry spells it; without a decision the pair is refused', async () => {
    const asked: string[] = [];
    const gateway = await scene.gateway({
      authorize: async (user, { dataType, key }) => {
        asked.push(`${user.id} ${dataType} ${key}`);
        if (key === 'THROWS') throw new Error('no answer');
        if (key === 'WORD') return 'yes' as never;
        return key === 'MINE';
      },
    });
    const client = await gateway.greet('ada');
    expect(await client.want([['quote', 'mine'], ...pairs.slice(1)])).toEqual([
      'accepted',
      'PGF_LIVE_FORBIDDEN',
      'PGF_LIVE_UNDECIDED',
      'PGF_LIVE_UNDECIDED',
    ]);
    expect(asked.slice(0, 4)).toEqual(['ada quote MINE', 'ada quote YOURS', 'ada quote THROWS', 'ada quote WORD']);
    await client.next('snapshot');
    await scene.quote('YOURS', 1);
    await scene.quote('MINE', 1);
    expect(await client.next('change')).toMatchObject({ pair: ['quote', 'MINE'] });
    expect(await scene.queued()).toEqual(['quote MINE']);
  });

  it('is asked again, and a withdrawn right ends within ten seconds', async () => {
    let allowed = true;
    const gateway = await scene.gateway({ authorize: (_, { key }) => key === 'KEPT' || allowed });
    const client = await gateway.greet('ada');
    await client.want([
      ['quote', 'KEPT'],
      ['quote', 'LOST'],
    ]);
    await client.next('snapshot');
    await client.next('snapshot');
    allowed = false;
    const since = performance.now();
    expect(await client.next('revoked')).toMatchObject({ pair: ['quote', 'LOST'], code: 'PGF_LIVE_FORBIDDEN' });
    expect(performance.now() - since).toBeLessThan(10_000);
    await scene.quote('LOST', 1);
    await scene.quote('KEPT', 1);
    expect(await client.next('change')).toMatchObject({ pair: ['quote', 'KEPT'] });
    await expect.poll(() => scene.demand()).toEqual(['quote KEPT 1']);
  });
});

describe('the configuration', () => {
  const refused = (gateway: object) => () => resolveConfig({ config: { gateway } });
  it.each([
    [{ jwt: {} }, 'expected secret or jwksUrl'],
    [{ jwt: { secret: { env: 'A' }, jwksUrl: 'https://a.example.com' } }, 'expected secret or jwksUrl'],
    [{ jwt: { secret: 'the secret itself' } }, 'never the secret itself'],
    [{ jwt: { jwksUrl: 'file:///etc/passwd' } }, 'https://'],
    [{ anonymous: true }, '"loopback"'],
    [{ authorise: () => true }, 'did you mean "authorize"'],
    [{ authorize: true }, 'expected a function'],
    [{ origins: ['https://app.example.com/path'] }, 'without a path'],
    [{ limits: { pairsPerUser: 0 } }, 'limits.pairsPerUser'],
    [{ limits: { pairs: 1 } }, 'there is no such option'],
  ])('%j says what is expected', (gateway, problem) => {
    expect(refused(gateway)).toThrow(problem);
    expect(refused(gateway)).toThrow(expect.objectContaining({ code: 'PGF_CONFIG_INVALID' }) as Error);
  });

  it('is refused at the start if the secret is missing or too short', async () => {
    process.env['TEST_SHORT_SECRET'] = 'short';
    for (const env of ['TEST_NO_SECRET', 'TEST_SHORT_SECRET'])
      await expect(scene.gateway({ jwt: { secret: { env } } })).rejects.toMatchObject({ code: 'PGF_GATEWAY_SECRET' });
    await expect(scene.gateway({ jwt: { secret: { file: '/nowhere/secret' } } })).rejects.toMatchObject({
      code: 'PGF_GATEWAY_SECRET',
    });
  });
});

function signed(fill: (jwt: SignJWT) => SignJWT, alg = 'HS256'): Promise<string> {
  return fill(new SignJWT().setProtectedHeader({ alg })).sign(new TextEncoder().encode(secret));
}

function unsigned(payload: object): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  return `${part({ alg: 'none' })}.${part(payload)}.`;
}

it('truth 26: check reports that the secret of tokens is not set', async () => {
  const gateway = { jwt: { userClaim: 'sub', secret: { env: 'UNSET_JWT_SECRET' } } };
  expect(await examineGatewaySecret({ gateway })).toContainEqual({
    name: 'gateway',
    state: 'fatal',
    code: 'PGF_GATEWAY_SECRET',
    detail:
      'The secret of gateway.jwt cannot be used: expected 32 characters or more in the variable UNSET_JWT_SECRET, got 0',
    next: 'Use a secret of 32 characters or more, the same one that signs the tokens.',
  });
  const set = { jwt: { userClaim: 'sub', secret: { env: 'TEST_JWT_SECRET' } } };
  expect(await examineGatewaySecret({ gateway: set })).toEqual([]);
});
