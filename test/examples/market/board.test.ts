import { readFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';
import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { createDatabase, openDatabase } from '../../harness/database.ts';
import { card, keepPicture, notedBy, openBoard, openPerson, startBoard } from './board-scene.ts';

const symbol = 'DIS.X';

/** What the functions that run in the page use of it. */
interface Browsing {
  readonly document: {
    querySelector(text: string): { readonly textContent: string } | null;
    readonly activeElement: { getAttribute(name: string): string | null; readonly textContent: string } | null;
    readonly documentElement: { readonly scrollWidth: number; readonly clientWidth: number };
  };
}

async function callsOf(provider: string, route: string): Promise<number> {
  const answer = await fetch(`${provider}/admin/meter/calls`);
  const { calls } = (await answer.json()) as { calls: { route: string; symbol: string }[] };
  return calls.filter((call) => call.route === route && call.symbol === symbol).length;
}

it('two pages cost one call, and both come back by themselves when the server was killed', async () => {
  const databaseUrl = await createDatabase();
  const server = await startBoard(databaseUrl);
  const { person } = await openPerson();
  const pages = await Promise.all([1, 2].map(() => openBoard(person, server.url, symbol)));
  for (const page of pages) await card(page, 'Quote').getByText('2 viewers, one call').waitFor();
  expect(await callsOf(server.provider, 'quote')).toBe(1);

  // One asks for a newer one: one call more, and both have it.
  const before = await Promise.all(pages.map(notedBy));
  const price = await card(pages[1]!, 'Quote').locator('.price .pulse').textContent();
  await card(pages[0]!, 'Quote').getByRole('button', { name: 'Refresh quote now' }).click();
  for (const page of pages) {
    await page.waitForFunction(
      ([old]) => (globalThis as unknown as Browsing).document.querySelector('.price .pulse')?.textContent !== old,
      [price],
    );
  }
  expect(await callsOf(server.provider, 'quote')).toBe(2);
  const [one, two] = (await Promise.all(pages.map(notedBy))).map((noted, index) => noted.slice(before[index]!.length));
  const shared = one!.filter(({ version }) => two!.some((other) => other.version === version));
  expect(shared.length).toBeGreaterThan(0);
  for (const { at, version } of shared)
    expect(Math.abs(at - two!.find((other) => other.version === version)!.at)).toBeLessThan(200);

  // Killed: both say so at once, and keep what they have.
  server.child.signal('SIGKILL');
  await server.child.exit;
  const killedAt = Date.now();
  for (const page of pages) await page.getByRole('alert').getByText('The server is away.').waitFor();
  expect(Date.now() - killedAt).toBeLessThan(1_000);
  for (const page of pages) expect(await card(page, 'Quote').locator('.price').isVisible()).toBe(true);

  // Back again: both recover, and no version has gone back.
  await startBoard(databaseUrl, new URL(server.url).port);
  for (const page of pages) {
    await page.getByRole('status').getByText('Live').waitFor();
    await card(page, 'Quote').getByText('fresh').waitFor();
    expect(await page.getByRole('alert').count()).toBe(0);
    const versions = (await notedBy(page)).map(({ version }) => version);
    expect(versions).toEqual(versions.toSorted());
  }
}, 60_000);

it('shows what a slow, dead or lying provider does to values: nothing but age', async () => {
  const databaseUrl = await createDatabase();
  const db = openDatabase(databaseUrl);
  const { url } = await startBoard(databaseUrl);
  const { person, complaints } = await openPerson();
  const page = await openBoard(person, url, symbol);
  const quote = card(page, 'Quote');
  const titles = ['Quote', 'Ratios', 'Profile', 'Dividends', 'Statements'];
  for (const title of titles) await card(page, title).getByText('fresh', { exact: true }).waitFor();
  const make = async (trouble: string): Promise<void> => {
    await page.getByRole('button', { name: 'Break the provider' }).click();
    await page.getByRole('menuitemradio', { name: trouble }).click();
    await page
      .getByRole('status')
      .getByText(/^The provider (is|lies)/)
      .waitFor();
  };
  const refresh = (title: string) =>
    card(page, title)
      .getByRole('button', { name: /^Refresh/ })
      .click();
  const ageOf = async (): Promise<number> => {
    const time = await quote.locator('time').getAttribute('datetime');
    return Date.now() - Date.parse(time!);
  };
  const priceOf = () => quote.locator('.price .pulse').textContent();
  const price = await priceOf();

  // Ten seconds of waiting are what a call may cost.
  await make('Make it slow');
  for (const title of ['Quote', 'Ratios']) await refresh(title);
  await quote.getByText('being refreshed').waitFor();
  for (const title of ['Quote', 'Ratios']) {
    await card(page, title).getByText('failing', { exact: true }).waitFor();
    await card(page, title)
      .getByText(/timeout/)
      .waitFor();
  }

  // Five failures in a row, and it is left alone.
  await make('Take it down');
  for (const title of titles.slice(2)) await refresh(title);
  await page
    .getByRole('status')
    .getByText(/5 failures in a row pgfresh leaves it alone, and tries one call at/)
    .waitFor();
  for (const title of titles) expect(await card(page, title).locator('.bone').count()).toBe(0);
  await quote.getByText(/left alone/).waitFor();
  expect(await priceOf()).toBe(price);
  expect(await ageOf()).toBeGreaterThan(10_000);
  await keepPicture(page, 'provider-down');

  // It is back, and the pause is over: the probe makes it fresh.
  await page.getByRole('button', { name: 'Back to normal' }).click();
  await page.getByRole('button', { name: 'Try it now' }).waitFor();
  await db.query('update pgfresh.source_state set paused_until = pgfresh.clock()');
  await db.query(`select pgfresh.reset_job_immediate(id) from pgfresh.job where state = 'w'`);
  for (const title of titles) await card(page, title).getByText('fresh', { exact: true }).waitFor();
  expect(await page.locator('.notice').count()).toBe(0);

  // A lie is refused, and said to be one.
  const honest = await priceOf();
  await make('Make it lie');
  await refresh('Quote');
  await quote.getByText('failing', { exact: true }).waitFor();
  await quote.getByText(/price/).waitFor();
  expect(await priceOf()).toBe(honest);
  expect(complaints).toEqual([]);
}, 60_000);

it('is for everybody: by keyboard alone, for a screen reader, small, and in order at every width', async () => {
  const { url } = await startBoard(await createDatabase());
  const { person, complaints } = await openPerson();
  const scripts: Promise<number>[] = [];
  person.on('response', (response) => {
    if (response.request().resourceType() === 'script')
      scripts.push(response.body().then((body) => gzipSync(body).length));
  });
  const page = await openBoard(person, url, symbol);
  expect((await Promise.all(scripts)).reduce((sum, size) => sum + size, 0)).toBeLessThan(150_000);

  // Find a symbol, watch it, break the provider and mend it, without a mouse.
  const keys = page.keyboard;
  const tabTo = async (name: RegExp): Promise<void> => {
    for (let step = 0; step < 60; step++) {
      await keys.press('Tab');
      if (name.test(await page.evaluate(nameOfFocused))) return;
    }
    throw new Error(`Tab does not reach ${name}`);
  };
  await keys.press('/');
  await keys.type('meta');
  await page.getByRole('option', { name: /^META/ }).first().waitFor();
  await keys.press('ArrowDown');
  await keys.press('Enter');
  await page.waitForURL(/#META\.X$/);
  await card(page, 'Quote').locator('.price').waitFor();
  await tabTo(/^Watch$/);
  await keys.press('Space');
  await page.getByRole('button', { name: 'Watched', pressed: true }).waitFor();
  await tabTo(/^Refresh statements now$/);
  await page.reload();
  await tabTo(/^Skip to the symbol$/);
  await tabTo(/^Break the provider/);
  await keys.press('Enter');
  await keys.press('ArrowDown');
  await keys.press('Enter');
  await page.getByRole('status').getByText('The provider is down.').waitFor();
  await tabTo(/^Back to normal$/);
  await keys.press('Enter');
  await page.locator('.notice').waitFor({ state: 'detached' });
  await tabTo(/^DIS\.X/);
  await keys.press('Enter');
  await card(page, 'Quote').locator('.price').waitFor();

  // Every width, light and dark.
  const axe = await readFile('node_modules/axe-core/axe.min.js', 'utf8');
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    for (const width of [1440, 768, 360]) {
      await page.setViewportSize({ width, height: 900 });
      await keepPicture(page, `${width}-${colorScheme}`);
      const overflow = await page.evaluate(() => {
        const { scrollWidth, clientWidth } = (globalThis as unknown as Browsing).document.documentElement;
        return scrollWidth - clientWidth;
      });
      expect(overflow, `the page is wider than ${width} px`).toBeLessThanOrEqual(0);
      expect(await violations(page, axe), `at ${width} px, ${colorScheme}`).toEqual([]);
    }
  }
  await page.getByRole('button', { name: 'Break the provider' }).click();
  await page.getByRole('menu').waitFor();
  expect(await violations(page, axe)).toEqual([]);
  expect(complaints).toEqual([]);
}, 60_000);

/** What has the focus, in the page. */
function nameOfFocused(): string {
  const focused = (globalThis as unknown as Browsing).document.activeElement;
  return focused?.getAttribute('aria-label') ?? focused?.textContent ?? '';
}

interface Violation {
  readonly id: string;
  readonly impact: string;
  readonly nodes: readonly { readonly html: string }[];
}

/** What axe finds that is serious, with where it is. */
async function violations(page: Page, axe: string): Promise<string[]> {
  // Not as a script of the page, which its policy would refuse.
  const found = (await page.evaluate(`${axe};axe.run().then(({ violations }) => violations)`)) as Violation[];
  return found
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
}
