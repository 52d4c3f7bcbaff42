import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { openDatabase } from '../harness/database.ts';
import { Proxy } from '../harness/proxy.ts';
import { StatementLog } from '../harness/statement-log.ts';
import { RefreshScene } from '../refresh/scene.ts';
import { startWorker } from '../worker/scene.ts';
import { LiveScene, RunningGateway } from './live-scene.ts';

/** The statements of a cold pair, from the request to its row at the viewer. */
const statements = [
  'gateway pgfresh.want_pairs',
  'gateway pgfresh.read_pairs',
  'worker pgfresh.claim',
  'worker begin',
  'worker pgfresh.fence',
  'worker pgfresh.write',
  'worker pgfresh.complete',
  'worker commit',
  'gateway pgfresh.read_pairs',
];

/** Statements that run several times per second, with or without a cold pair. */
const regular = ['gateway pgfresh.pump', 'gateway pgfresh.poll'];

/** The short name of a statement; undefined for the limits and commits that a gateway sends with it. */
function named({ by, statement }: { readonly by: string; readonly statement: string }): string[] {
  const name = `${by} ${statement.replace(/^(begin|pgfresh\.write)\b.*/s, '$1')}`;
  return ['gateway begin', 'gateway commit', ...regular].includes(name) ? [] : [name];
}

it('a cold pair costs nine statements from the request to its row', async () => {
  const scene = await RefreshScene.open();
  const log = new StatementLog();
  const behind = async (by: string): Promise<string> => {
    const { proxy, url } = await Proxy.before(scene.url);
    onTestFinished(() => proxy.close());
    log.follow(proxy, by);
    return url;
  };
  const url = await behind('gateway');
  const gateway = await RunningGateway.start({ db: openDatabase(url), url }, {});
  onTestFinished(() => gateway.stop());
  const worker = await startWorker(scene, { url: await behind('worker') });
  onTestFinished(() => worker.stop());
  const client = await gateway.greet('ada');
  const costs: string[][] = [];
  for (const key of ['WARM', ...Array.from({ length: 9 }, (_, n) => `COLD${n}`)]) {
    const snapshot = Promise.withResolvers<void>();
    // The provider takes longer than the viewer waits for a first snapshot.
    scene.provider.answers.set(`/quote/${key}`, (_request, response) => {
      const answer = { symbol: key, price: 1, at: '2026-01-05T12:00:00Z' };
      void snapshot.promise.then(() =>
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer)),
      );
    });
    log.take();
    client.say({ type: 'add', pairs: [['quote', key]] });
    expect(await client.nextAbout('quote', ['snapshot'])).toMatchObject({ state: 'missing', rows: [] });
    snapshot.resolve();
    const isFresh = ({ state }: Record<string, unknown>): boolean => state === 'fresh';
    expect(await client.nextAbout('quote', ['change'], isFresh)).toMatchObject({ rows: [{ symbol: key }] });
    const sent = log.take().flatMap(named);
    // A worker claims again as soon as its job has ended, whether there are more jobs or not.
    costs.push(sent.filter((name, place) => name !== 'worker pgfresh.claim' || sent.indexOf(name) === place));
  }
  // Statements that run once per second or less may come in between, but not each time.
  const [least] = costs.slice(1).toSorted((a, b) => a.length - b.length);
  expect(least!.toSorted()).toEqual(statements.toSorted());
});

describe('a requested pair', () => {
  let scene: LiveScene;
  beforeAll(async () => {
    scene = await LiveScene.open();
  });
  beforeEach(() => scene.clear());

  it('is planned and counted before it is answered', async () => {
    const client = await (await scene.gateway()).greet('ada');
    expect(await client.want([['quote', 'ONE']])).toEqual(['accepted']);
    expect([await scene.queued(), await scene.demand()]).toEqual([['quote ONE'], ['quote ONE 1']]);
  });

  it('is planned once, even if many request it through several gateways while planners run', async () => {
    const gateways = await Promise.all([scene.gateway(), scene.gateway(), scene.gateway()]);
    const clients = await Promise.all(gateways.flatMap((gateway) => ['ada', 'ben'].map((user) => gateway.greet(user))));
    const keys = Array.from({ length: 20 }, (_, n) => `MANY${'X'.repeat(n)}`);
    const planning = Promise.all(keys.map(() => scene.db.query('select pgfresh_engine.plan_due_pairs()')));
    await Promise.all(clients.map((client) => client.want(keys.map((key) => ['quote', key]))));
    await planning;
    await scene.db.query('select pgfresh_engine.plan_due_pairs()');
    const queued = (await scene.queued()).filter((pair) => pair.includes('MANY'));
    expect(queued).toEqual(keys.map((key) => `quote ${key}`));
    await expect
      .poll(async () => (await scene.demand()).filter((pair) => pair.includes('MANY')))
      .toEqual(keys.map((key) => `quote ${key} 6`));
  });

  it('counts against the limit of new pairs only if it is new, and only once', async () => {
    const gateway = await scene.gateway({ limits: { newPairsPerMinute: 3 } });
    const known = Array.from({ length: 6 }, (_, n) => ['quote', `KNOWN${'X'.repeat(n)}`]);
    await scene.db.query(
      `insert into pgfresh_engine.pairs (type_id, key) select r.type_id, unnest($1::text[]) from pgfresh.data_type_registry as r`,
      [known.map(([, key]) => key)],
    );
    const fresh = ['NEWA', 'NEWB', 'NEWC'].map((key) => ['quote', key]);
    const clients = await Promise.all(Array.from({ length: 4 }, () => gateway.greet('ada')));
    const results = await Promise.all(clients.map((client) => client.want([...known, ...fresh])));
    expect(new Set(results.flat())).toEqual(new Set(['accepted']));
    const more = await gateway.greet('ada');
    expect(await more.want([['quote', 'NEWD'], ...known])).toEqual([
      'PGF_LIVE_TOO_MANY_NEW_PAIRS',
      ...known.map(() => 'accepted'),
    ]);
    expect((await scene.queued()).filter((pair) => pair.includes('NEWD'))).toEqual([]);
  });

  it('leaves nothing behind if it is refused: by authorize, by a limit, by its name', async () => {
    const strict = await scene.gateway({ authorize: (_, { key }) => key !== 'DENIED' });
    const client = await strict.greet('ada');
    expect(
      await client.want([
        ['quote', 'DENIED'],
        ['quote', 'allowed'],
      ]),
    ).toEqual(['PGF_LIVE_FORBIDDEN', 'accepted']);
    const small = await scene.gateway({ limits: { pairsPerConnection: 2, pairsPerUser: 3 } });
    const [one, two] = [await small.greet('ada'), await small.greet('ada')];
    const results = await Promise.all([
      one.want([
        ['quote', 'FITA'],
        ['quote', 'FITB'],
        ['quote', 'FULL'],
      ]),
      two.want([
        ['quote', 'FITA'],
        ['quote', 'OVER'],
      ]),
    ]);
    const accepted = new Set(
      [
        ['FITA', 'FITB', 'FULL'],
        ['FITA', 'OVER'],
      ].flatMap((keys, turn) => keys.filter((_, place) => results[turn]![place] === 'accepted')),
    );
    expect(results.flat().filter((result) => result === 'accepted')).toHaveLength(3);
    await expect.poll(() => scene.queued()).toEqual([...accepted, 'ALLOWED'].map((key) => `quote ${key}`).toSorted());
  });
});
