import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { build } from 'vite';
import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import market from '../../examples/market/pgfresh.config.ts';
import { buildBrowserClient } from '../../scripts/browser-client.ts';
import { LiveScene, type RunningGateway } from '../gateway/live-scene.ts';
import { openBrowser } from '../harness/browser.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { Proxy } from '../harness/proxy.ts';
import { seededRandom } from '../harness/random.ts';

let browser: Browser;
let script: string;
let scene: LiveScene;
let running: RunningGateway;
let url: string;
beforeAll(async () => {
  [browser, script, scene] = await Promise.all([openBrowser(), bundled('pages/cards.ts'), LiveScene.open()]);
});
beforeEach(async () => {
  await scene.clear();
  running = await scene.gateway(market.gateway, {}, (app) => {
    app.get('/cards.html', (context) =>
      context.html(pageWith(context.req.query('rendered') === undefined ? '' : rendered)),
    );
    app.get('/cards.js', (context) => context.body(script, 200, { 'content-type': 'text/javascript' }));
  });
  url = running.http.url;
});

const pageWith = (content: string) =>
  `<!doctype html><title>cards</title><link rel="icon" href="data:," /><div id="root">${content}</div><script type="module" src="/cards.js"></script>`;
// The page as a server renders it; see test/client/react-server.test.ts.
const rendered =
  '<main><p id="status">idle</p><ul><li class="card">loading undefined</li></ul><p id="presence">undefined</p><p id="many"></p></main>';

interface TestWindow {
  client: { get(type: string, key: string): Promise<unknown>; status: string };
  show: (cards: number[]) => void;
  showSlowly: (cards: number[]) => void;
  look: (keys: string[]) => void;
  torn: string[];
  rendered: unknown[];
}

/** The errors and logs of the test's pages. */
let complaints: string[] = [];

async function openContext(): Promise<BrowserContext> {
  const context = await browser.newContext();
  complaints = [];
  context.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
  context.on('weberror', (error) => complaints.push(error.error().message));
  onTestFinished(() => context.close());
  return context;
}

async function openCards(context: BrowserContext, at = url, query = ''): Promise<Page> {
  const page = await context.newPage();
  await page.goto(`${at}/cards.html${query}`);
  await page.waitForSelector('#status');
  return page;
}

const show = (page: Page, cards: number[]) =>
  page.evaluate((shown) => (globalThis as unknown as TestWindow).show(shown), cards);
const cardsOf = (page: Page) => page.locator('.card').allTextContents();
const statusOf = (page: Page) => page.textContent('#status');

describe('cards in a page', () => {
  it('that show one pair are one subscription while they mount and unmount, and none is left at the end', async () => {
    await scene.quote('AAPL', 1);
    const page = await openCards(await openContext());
    const random = seededRandom(8);
    for (let turn = 0; turn < 40; turn++) {
      await show(
        page,
        Array.from({ length: 10 }, (_, card) => card).filter(() => random() < 0.5),
      );
      if (turn % 10 === 0) await scene.quote('AAPL', 2 + turn);
      expect((await scene.demand()).length).toBeLessThan(2);
    }
    await show(page, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    await scene.quote('AAPL', 100);
    await expect.poll(() => cardsOf(page)).toEqual(Array.from({ length: 10 }, () => 'fresh 100'));
    await expect.poll(() => scene.demand()).toEqual(['quote AAPL 1']);
    expect(running.seen.filter(({ type }) => type === 'gateway.opened')).toHaveLength(1);
    await scene.db.query('select pgfresh_engine.plan_due_pairs()');
    await expect.poll(() => page.textContent('#presence')).toBe('1');
    expect(await page.evaluate(() => (globalThis as unknown as TestWindow).torn)).toEqual([]);
    await show(page, []);
    await expect.poll(() => scene.demand()).toEqual([]);
    await expect.poll(() => statusOf(page)).toBe('idle');
    expect(complaints).toEqual([]);
  });

  it('show the same at every moment, even if a change arrives during a long rendering', async () => {
    let price = 1;
    await scene.quote('AAPL', price);
    const page = await openCards(await openContext());
    let seen: unknown[] = [];
    // Until a change arrived during the rendering.
    while (!seen.includes(price) || !seen.includes(price - 1)) {
      await show(page, [0]);
      await expect.poll(() => cardsOf(page)).toEqual([`fresh ${price}`]);
      price += 1;
      await page.evaluate(() => {
        const test = globalThis as unknown as TestWindow;
        test.rendered = [];
        test.showSlowly([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
      });
      await scene.quote('AAPL', price);
      await expect.poll(() => cardsOf(page)).toEqual(Array.from({ length: 10 }, () => `fresh ${price}`));
      seen = await page.evaluate(() => (globalThis as unknown as TestWindow).rendered);
    }
    expect(await page.evaluate(() => (globalThis as unknown as TestWindow).torn)).toEqual([]);
    expect(complaints).toEqual([]);
  });

  it('that a server rendered are hydrated', async () => {
    await scene.quote('AAPL', 1);
    const context = await openContext();
    const page = await openCards(context, url, '?rendered');
    await expect.poll(() => cardsOf(page)).toEqual(['fresh 1']);
    expect(complaints).toEqual([]);
  });

  it('show many pairs in the order of their keys', async () => {
    await scene.quote('AAPL', 1);
    await scene.quote('MSFT', 2);
    const page = await openCards(await openContext());
    const look = (keys: string[]) => page.evaluate((all) => (globalThis as unknown as TestWindow).look(all), keys);
    await look(['MSFT', 'AAPL']);
    await expect.poll(() => page.textContent('#many')).toBe('MSFT 2, AAPL 1');
    await look(['AAPL', 'NVDA', 'MSFT']);
    await expect.poll(() => page.textContent('#many')).toBe('AAPL 1, NVDA undefined, MSFT 2');
    await scene.quote('NVDA', 3);
    await expect.poll(() => page.textContent('#many')).toBe('AAPL 1, NVDA 3, MSFT 2');
    await look([]);
    await expect.poll(() => scene.demand()).toEqual([]);
  });

  it('show the newest state after ten minutes of sleep', async () => {
    await scene.quote('AAPL', 1);
    const { proxy, url: address } = await Proxy.before(url);
    onTestFinished(() => proxy.close());
    const context = await openContext();
    await context.clock.install();
    const page = await openCards(context, new URL(address).origin);
    await show(page, [1]);
    await expect.poll(() => cardsOf(page)).toEqual(['fresh 1']);
    // Nothing arrives over the old connection any more, not even its end.
    proxy.judge = (chunk) => {
      if (!chunk.toString('latin1').startsWith('GET /live')) return 'hold';
      proxy.judge = () => 'pass';
      return 'pass';
    };
    await scene.quote('AAPL', 2);
    await page.clock.fastForward('10:00');
    // It wakes, sends a ping, and gets no answer.
    await page.evaluate("document.dispatchEvent(new Event('resume'))");
    await page.clock.fastForward(3_001);
    await page.clock.fastForward(1_001);
    await expect.poll(() => cardsOf(page)).toEqual(['fresh 2']);
  });

  it('in several tabs share one connection, and another tab takes over if one crashes', async () => {
    await scene.quote('AAPL', 1);
    const context = await openContext();
    const [first, second] = [await openCards(context, url, '?share=us'), await openCards(context, url, '?share=us')];
    await show(first, [1]);
    await expect.poll(() => cardsOf(first)).toEqual(['fresh 1']);
    await show(second, [1]);
    await expect.poll(() => cardsOf(second)).toEqual(['fresh 1']);
    await expect.poll(() => scene.demand()).toEqual(['quote AAPL 1']);
    expect(running.seen.filter(({ type }) => type === 'gateway.opened')).toHaveLength(1);
    const crashed = first.waitForEvent('crash');
    await first.goto('chrome://crash').catch(() => {});
    await crashed;
    await scene.quote('AAPL', 2);
    await expect.poll(() => cardsOf(second)).toEqual(['fresh 2']);
    await expect.poll(() => scene.demand()).toEqual(['quote AAPL 1']);
  });
});

it('the page of the README works as a file', async () => {
  await buildBrowserClient();
  await scene.quote('AAPL.X', 187.2);
  const readme = await readFile('README.md', 'utf8');
  const { anonymous, origins } = market.gateway!;
  const access = await readFile('docs/guides/access.md', 'utf8');
  expect(access).toContain(`gateway: { anonymous: '${anonymous}', origins: ['${origins!.join()}'] }`);
  const html = /```html\n([\s\S]*?)```/.exec(readme)![1]!;
  expect(html.trim().split('\n').length).toBeLessThanOrEqual(20);
  const file = join(await temporaryFolder('readme'), 'page.html');
  await writeFile(file, html.replaceAll('http://127.0.0.1:4400', url));
  const page = await (await openContext()).newPage();
  await page.goto(pathToFileURL(file).href);
  await expect.poll(() => page.textContent('body')).toContain('187.2');
  await scene.quote('AAPL.X', 190.5);
  await expect.poll(() => page.textContent('body')).toContain('190.5');
  expect(complaints).toEqual([]);
});

/** A script of this folder, bundled. */
async function bundled(path: string): Promise<string> {
  const at = (file: string) => new URL(`../../client/${file}.ts`, import.meta.url).pathname;
  const built = await build({
    configFile: false,
    logLevel: 'warn',
    define: { 'process.env.NODE_ENV': '"development"' },
    resolve: {
      alias: [
        { find: /^pgfresh\/client$/, replacement: at('index') },
        { find: /^pgfresh\/react$/, replacement: at('react') },
      ],
    },
    build: {
      write: false,
      minify: false,
      modulePreload: { polyfill: false },
      rolldownOptions: { input: new URL(path, import.meta.url).pathname },
    },
  });
  const [chunk] = (built as { output: { code: string }[] }).output;
  return chunk!.code;
}
