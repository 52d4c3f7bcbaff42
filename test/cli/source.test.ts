import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Calibration, SourceHealth } from '../../src/sources/index.ts';
import { runCommand } from '../harness/command-line.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { createDatabase } from '../harness/database.ts';
import { QueueScene } from '../queue/scene.ts';

let scene: QueueScene;
let cwd = '';
beforeAll(async () => {
  scene = await QueueScene.open();
  await scene.source('paid', { rate: 300, quotaBytes: 1_000_000 });
  await scene.type('page', 'paid');
  cwd = await temporaryFolder('source');
});

const pgfresh = (...args: string[]) => runCommand(args, { cwd, env: { DATABASE_URL: scene.url } });
const json = async <T>(...args: string[]) => JSON.parse((await pgfresh(...args, '--json')).stdout) as T;

describe('pgfresh source', () => {
  it('truth 22: lists all of them in units that people read, says what free means, and is whole as JSON', async () => {
    const { code, stdout } = await pgfresh('source', 'list');
    expect(code).toBe(0);
    expect(stdout).toMatch(/^source +state +calls free +bytes free +pace +last success +why\n/);
    expect(stdout).toMatch(/^market +ok +no limit +no limit +– +never$/m);
    expect(stdout).toMatch(/^paid +ok +56 of 300\/min +31\.7 KB of 950 KB +30\.6 KB\/day +never$/m);
    expect(stdout).toMatch(/\n\nFree is what may be used this moment\. .* at the pace shown\.\n$/);
    const { sources } = await json<{ sources: SourceHealth[] }>('source', 'list');
    expect(sources).toMatchObject([
      { source: 'market', state: 'ok', calls_free: null, quota_cap: null },
      { source: 'paid', state: 'ok', calls_free: 56, quota_cap: 950_000, api_keys: 1 },
    ]);
  });

  it('shows one', async () => {
    expect((await pgfresh('source', 'show', 'paid')).stdout).toMatch(/^rate_limit_per_minute +300$/m);
    expect(await json('source', 'show', 'paid')).toMatchObject({ source: { source: 'paid' } });
  });

  it('pauses and resumes one, and says so in check', async () => {
    expect(await pgfresh('source', 'pause', 'paid', '--for', '2h', '--reason', 'maintenance')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^paid is paused until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\.\n$/) as string,
    });
    expect((await pgfresh('check')).stdout).toMatch(
      /! source paid: paused until \S+Z: maintenance\n {2}Next: Run "pgfresh source resume paid" when/,
    );
    const paused = await json<{ source: SourceHealth }>('source', 'pause', 'paid');
    expect(paused.source).toMatchObject({ state: 'paused', paused_until: 'infinity', pause_reason: 'paused by hand' });
    expect((await pgfresh('source', 'pause', 'paid')).stdout).toBe('paid is paused until it is resumed.\n');
    expect(await json('source', 'resume', 'paid')).toMatchObject({ source: { state: 'ok', paused_until: null } });
    expect((await pgfresh('source', 'resume', 'paid')).stdout).toBe('paid may be called again.\n');
    await scene.db.query(`update pgfresh.sources set enabled = false where name = 'paid'`);
    expect((await pgfresh('source', 'resume', 'paid')).stdout).toMatch(/but it is switched off\.\nNext: /);
    await scene.db.query(`update pgfresh.sources set enabled = true where name = 'paid'`);
  });

  it('truth 24: sets and clears a setting, and shows everywhere what is overridden, by whom and why', async () => {
    await scene.db.query(
      `select set_config('pgfresh.sync', 'rate_limit_per_minute', false); update pgfresh.sources set managed_by = 'config' where name = 'paid'; select set_config('pgfresh.sync', '', false)`,
    );
    expect(
      await pgfresh('source', 'set', 'paid', 'rate_limit_per_minute', '120', '--reason', 'incident 7'),
    ).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/is 120 now\. It stays until "pgfresh source clear/) as string,
    });
    const told = /rate_limit_per_minute 120 instead of 300, set by \S+ at \S+Z \(incident 7\)/;
    for (const command of [['source', 'list'], ['source', 'show', 'paid'], ['check']])
      expect((await pgfresh(...command)).stdout).toMatch(told);
    expect((await pgfresh('source', 'set', 'paid', 'rate_limit', '1', '--reason', 'x')).stderr).toMatch(
      /no setting 'rate_limit'[^]*rate_limit_per_minute/,
    );
    expect((await pgfresh('source', 'set', 'paid', 'rate_limit_per_minute', '-1', '--reason', 'x')).stderr).toMatch(
      /rate_limit_per_minute: expected rate_limit_per_minute > 0, got -1/,
    );
    expect((await pgfresh('source', 'clear', 'paid')).stdout).toBe(
      '1 setting cleared: paid follows the configuration.\n',
    );
    expect((await pgfresh('check')).stdout).not.toMatch(/instead of/);
  });

  it('truth 22: reads and shows sizes and times in units that people write', async () => {
    await scene.db.query(
      `select set_config('pgfresh.sync', 'quota_bytes,breaker_pause', false); update pgfresh.sources set quota_bytes = quota_bytes where name = 'paid'; select set_config('pgfresh.sync', '', false)`,
    );
    const set = (...args: string[]) => pgfresh('source', 'set', 'paid', ...args, '--reason', 'plan');
    expect(await set('quota_bytes', '500MB')).toMatchObject({ code: 0 });
    expect(await set('breaker_pause', '10s')).toMatchObject({ code: 0 });
    expect(await scene.value(`select quota_bytes from pgfresh.sources where name = 'paid'`)).toBe(500_000_000);
    const { stdout } = await pgfresh('source', 'show', 'paid');
    expect(stdout).toMatch(/breaker_pause 10s instead of 5m, set by \S+ at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \(plan\)/);
    expect(stdout).toMatch(/quota_bytes 500 MB instead of 1.0 MB/);
    expect((await set('quota_bytes', '5 pounds')).stderr).toMatch(/^PGF_USAGE quota_bytes: expected .*"500MB"/);
    await pgfresh('source', 'clear', 'paid');
  });

  it('truth 19: check names each obstacle and its own next step, and does not say that nothing is in the way', async () => {
    const check = async () => (await pgfresh('check')).stdout;
    const note = (key: number | null, kind: string) =>
      scene.db.query(
        `select pgfresh_engine.note_trouble(s.id, $1::smallint, case when $1 is null then r.type_id end, $2, array['1'], 1, pgfresh.clock(), 'HTTP 401', pgfresh.clock())
         from pgfresh.sources as s join pgfresh.data_type_registry as r on r.source_id = s.id where s.name = 'paid'`,
        [key, kind],
      );
    await note(null, 'refused');
    expect(await check()).toMatch(
      /^! data type page: paused until \S+Z: 1 answers in a row were refused: HTTP 401\n {2}Next: .*"pgfresh refused list page".*"pgfresh source resume paid" tries now\.$/m,
    );
    await note(1, 'denied');
    expect(await check()).toMatch(
      /^! source paid: not called until \S+Z: the provider refuses API key 1: HTTP 401\n {2}Next: Renew the API key, then run "pgfresh source resume paid"\.$/m,
    );
    const shown = (await pgfresh('source', 'show', 'paid')).stdout;
    expect(shown).toMatch(/^paused_by +credentials$/m);
    expect(shown).not.toMatch(/breaker_opened_at/);
    await pgfresh('source', 'resume', 'paid');
    await scene.db.query(`insert into pgfresh.spending_stop (reason) values ('enough')`);
    const stopped = await check();
    expect(stopped).toMatch(/^! spending: stopped: enough$/m);
    expect(stopped).toMatch(/\n\nNothing is fatal; \d+ warnings? above\.\n$/);
    await scene.db.query('delete from pgfresh.spending_stop');
  });

  it('of which check says whether their API keys are there', async () => {
    await writeFile(join(cwd, 'empty-key'), '\n');
    await writeFile(
      join(cwd, 'keys.config.ts'),
      `const authorize = (request, { apiKey }) => ({ query: { apiKey } });
      export default { sources: [
        { name: 'market', authorize, apiKeys: [{ env: 'MARKET_KEY' }] },
        { name: 'paid', authorize, apiKeys: [{ env: 'PAID_KEY' }, { file: 'empty-key' }] },
      ] };`,
    );
    const env = { DATABASE_URL: scene.url, MARKET_KEY: 'k-market', PAID_KEY: '' };
    const { code, stdout } = await runCommand(['check', '--config', 'keys.config.ts'], { cwd, env });
    expect(stdout).toMatch(/^✓ API keys of market: 1 there$/m);
    expect(stdout).toMatch(
      /^! API keys of paid: expected an API key in the variable PAID_KEY, got nothing; expected an API key in the file .*empty-key, got nothing\n {2}Next: Put them there/m,
    );
    expect(stdout).not.toContain('k-market');
    // Where nobody calls a source, as in CI, nothing is in the way.
    expect(code).toBe(0);
  });

  it('calibrates one, and shows the gap', async () => {
    const dry = await pgfresh('source', 'calibrate', 'paid', '1.5KB', '--dry-run');
    expect(dry.stdout).toMatch(
      /^provider +1500 bytes \(1\.5 KB\)\nledger +0 bytes \(0 B\)\ngap +\+1500 bytes \(1\.5 KB\)\nNothing was written\.$/m,
    );
    const { calibration } = await json<{ calibration: Calibration }>('source', 'calibrate', 'paid', '1500');
    expect(calibration).toMatchObject({ source: 'paid', gap_bytes: 1_500, correction: 1 });
    expect((await pgfresh('source', 'calibrate', 'paid', '1500')).stdout).toMatch(/They agree\.\n$/);
    const since = new Date(Date.now() - 7_200_000).toISOString();
    const less = await pgfresh('source', 'calibrate', 'paid', '1000', '--since', since, '--reason', 'the invoice');
    expect(less.stdout).toMatch(/^gap +-500 bytes \(-500 B\)\nEntered as correction 3\.$/m);
    expect(await scene.value(`select reason from pgfresh.usage_corrections where id = 3`)).toBe('the invoice');
  });

  it('truth 8: of which check says until when a quota is used up', async () => {
    await scene.db.query(
      `insert into pgfresh.usage_corrections (source, bytes, reason) values ('paid', 5000000, 'test')`,
    );
    expect((await pgfresh('check')).stdout).toMatch(
      /^! source paid: quota used up until \S+Z\n {2}Next: Wait until .*calibrate paid/m,
    );
  });

  it.each([
    [['source', 'show', 'piad'], 1, /PGF_SOURCE_UNKNOWN There is no source "piad"; did you mean "paid"\?/],
    [['source', 'pause', 'nobody'], 1, /PGF_SOURCE_UNKNOWN/],
    [['source', 'resume', 'markt'], 1, /did you mean "market"\?/],
    [['source', 'calibrate', 'piad', '1'], 1, /did you mean "paid"\?/],
    [['source', 'calibrate', 'paid'], 2, /missing required argument 'used'/],
    [['source', 'calibrate', 'paid', 'much'], 2, /expected a number of bytes, .*"20GB"/],
    [['source', 'calibrate', 'paid', '-1'], 2, /PGF_USAGE/],
    [
      ['source', 'calibrate', 'paid', '1', '--since', 'May'],
      2,
      /expected a time in UTC or with its offset, such as 2026-11-01/,
    ],
    [
      ['source', 'calibrate', 'paid', '1', '--since', '2999-01-01'],
      1,
      /PGF_ARGUMENT_INVALID since must lie in the past/,
    ],
    [['source', 'pause', 'paid', '--for', 'ever'], 2, /expected a positive time such as "30s"/],
    [['source', 'pause', 'paid', '--reason', ''], 1, /PGF_ARGUMENT_INVALID p_reason/],
    [['source', 'lst'], 2, /Did you mean list\?/],
    [['source', 'show'], 2, /missing required argument 'name'/],
    [['stop-spendin'], 2, /Did you mean stop-spending\?/],
    [['stop-spending', '--reason', ''], 1, /PGF_ARGUMENT_INVALID/],
    [['stop-spending', 'now'], 2, /too many arguments/],
  ])('%j is refused', async (args, exit, text) => {
    const { code, stderr } = await pgfresh(...args);
    expect([code, stderr]).toEqual([exit, expect.stringMatching(text)]);
    expect(await scene.value('select count(*)::int from pgfresh.spending_stop')).toBe(0);
  });

  it('says what to do where there is none', async () => {
    const { stdout } = await runCommand(['source', 'list'], { cwd, env: { DATABASE_URL: await createDatabase() } });
    expect(stdout).toMatch(/^No sources yet\.\nNext: /);
  });
});

it('stops spending and resumes it', async () => {
  const stopped = await pgfresh('stop-spending', '--reason', 'the bill');
  expect(stopped.stdout).toMatch(/^Nothing is spent any more\.\nNext: "pgfresh resume-spending"/);
  expect(await json('stop-spending')).toEqual({ stopped: true, changed: false });
  expect((await pgfresh('check')).stdout).toMatch(
    /! spending: stopped: the bill\n {2}Next: Run "pgfresh resume-spending"/,
  );
  expect((await pgfresh('source', 'list')).stdout).toMatch(/^market +stopped/m);
  expect(await json('resume-spending')).toEqual({ stopped: false, changed: true });
  expect((await pgfresh('resume-spending')).stdout).toBe('Nothing was stopped.\n');
});
