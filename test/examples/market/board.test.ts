import { gzipSync } from 'node:zlib';
import axe from 'axe-core';
import type { Locator, Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { createDatabase, openDatabase } from '../../harness/database.ts';
import { card, keepPicture, notedBy, openBoard, openPerson, startBoard } from './board-scene.ts';

const symbol = 'DIS.X';

/** What the functions that run in the page use of it. */
interface Browsing {
  readonly document: {
    readonly activeElement: { getAttribute(name: string): string | null; readonly textContent: string } | null;
    readonly documentElement: { readonly scrollWidth: number; readonly clientWidth: number };
    getAnimations(): readonly object[];
  };
  readonly location: { hash: string };
}

/** What the provider was asked, as "quote DIS.X". */
async function callsOf(provider: string): Promise<string[]> {
  const answer = await fetch(`${provider}/admin/meter/calls`);
  const { calls } = (await answer.json()) as { calls: { route: string; symbol: string }[] };
  return calls.map((call) => `${call.route} ${call.symbol}`);
}
const quotesOf = async (provider: string): Promise<number> =>
  (await callsOf(provider)).filter((call) => call === `quote ${symbol}`).length;

/** When the quote that a page shows was fetched. */
const fetchedAt = (page: Page) => card(page, 'Quote').locator('time').getAttribute('datetime');

it('two pages cost one call, and both come back by themselves when the server was killed', async () => {
  const databaseUrl = await createDatabase();
  const server = await startBoard(databaseUrl);
  const { person } = await openPerson();
  // Nine quotes of the watchlist, of which one is the symbol's, and its four other cards.
  const openedAt = Date.now();
  const first = await openBoard(person, server.url, symbol);
  await expect.poll(() => figures(first)).toMatchObject({ Views: '13', 'Pairs they share': '13' });
  const pages = [first, await openBoard(person, server.url, symbol)];
  for (const page of pages) await card(page, 'Quote').getByText('2 viewers, one call').waitFor();
  await expect.poll(() => figures(first)).toMatchObject({ Views: '26', 'Pairs they share': '13' });
  // One for both, and one more whenever it is due, should all this take so long.
  const isAsked = async (times: number): Promise<void> => {
    const due = Math.floor((Date.now() - openedAt) / 20_000);
    expect(await quotesOf(server.provider)).toSatisfy((count: number) => count >= times && count <= times + due);
  };
  await isAsked(1);
  // What the strip says is what the provider has counted.
  const callsAgree = async (): Promise<boolean> =>
    (await figures(first))['Calls this minute'] === `${(await callsOf(server.provider)).length} of 300`;
  await expect.poll(callsAgree).toBe(true);
  await expect
    .poll(() => figures(first))
    .toMatchObject({
      'Bytes this month': expect.stringMatching(/^[1-9][\d.]* KB of 19\.0 GB$/) as string,
      'Fresh now': expect.stringMatching(/^\d+\.\d %$/) as string,
    });

  // One asks for a newer one: one call more, and both have it.
  const points = await pointsOf(first);
  const before = await Promise.all(pages.map(notedBy));
  const fetched = await Promise.all(pages.map(fetchedAt));
  await card(pages[0]!, 'Quote').getByRole('button', { name: 'Refresh quote now' }).click();
  for (const [index, page] of pages.entries()) await expect.poll(() => fetchedAt(page)).not.toBe(fetched[index]);
  await isAsked(2);
  // What has changed lights up, and nothing else; whoever has written it.
  await openDatabase(databaseUrl).query(
    'update quotes set price = price + 1, source_updated_at = clock_timestamp() where symbol = $1',
    [symbol],
  );
  for (const page of pages) await card(page, 'Quote').locator('.price .pulse.rose').waitFor();
  expect(
    await card(first, 'Quote').getByText('Previous close').locator('..').locator('.pulse').getAttribute('class'),
  ).toBe('pulse ');
  const [one, two] = (await Promise.all(pages.map(notedBy))).map((noted, index) => noted.slice(before[index]!.length));
  const shared = one!.filter(({ version }) => two!.some((other) => other.version === version));
  expect(shared.length).toBeGreaterThan(0);
  for (const { at, version } of shared)
    expect(Math.abs(at - two!.find((other) => other.version === version)!.at)).toBeLessThan(2_000);

  // The chart has grown by it.
  expect(await pointsOf(first)).toBeGreaterThan(points);

  // Who asks again so soon is told why nothing comes.
  await expect
    .poll(async () => {
      await card(first, 'Quote').getByRole('button', { name: 'Refresh quote now' }).click();
      return card(first, 'Quote').locator('.why').innerText();
    })
    .toBe('Somebody has asked for it just now.');

  // Killed: both say so at once, and keep what they have.
  server.child.signal('SIGKILL');
  await server.child.exit;
  const killedAt = Date.now();
  for (const page of pages) await page.getByRole('alert').getByText('The server is away.').waitFor();
  // Not only when nothing was heard for long.
  expect(Date.now() - killedAt).toBeLessThan(5_000);
  for (const page of pages) {
    expect(await card(page, 'Quote').locator('.price').isVisible()).toBe(true);
    // Nobody knows whether that is still so.
    expect(await card(page, 'Quote').locator('.freshness').getAttribute('class')).toBe('freshness stale');
    expect(await page.locator('.strip.old').count()).toBe(1);
  }

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

it('is for everybody, and shows what a slow, dead or lying provider does to values: nothing but age', async () => {
  const databaseUrl = await createDatabase();
  const db = openDatabase(databaseUrl);
  const { url } = await startBoard(databaseUrl);
  const { person, complaints } = await openPerson();
  const scripts: Promise<number>[] = [];
  person.on('response', (response) => {
    if (response.request().resourceType() === 'script')
      scripts.push(response.body().then((body) => gzipSync(body).length));
  });
  const page = await openBoard(person, url, symbol);
  const quote = card(page, 'Quote');
  const titles = ['Quote', 'Ratios', 'Profile', 'Dividends', 'Statements'];
  const allFresh = async (): Promise<void> => {
    for (const title of titles) await card(page, title).getByText('fresh', { exact: true }).waitFor();
  };
  await allFresh();
  expect((await Promise.all(scripts)).reduce((sum, size) => sum + size, 0)).toBeLessThan(150_000);
  await worksByKeyboard(page);
  await worksByMouse(page);
  await takesAnyAddress(page);
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    for (const width of [360, 768, 1440]) {
      await page.setViewportSize({ width, height: 900 });
      await keepPicture(page, `${width}-${colorScheme}`);
      expect(await page.evaluate(overflowOf), `the page is wider than ${width} px`).toBeLessThanOrEqual(0);
    }
  }

  const make = async (trouble: string, sign: string): Promise<void> => {
    await page.getByRole('button', { name: 'Break the provider' }).click();
    await page.getByRole('menuitemradio', { name: trouble }).click();
    await page.locator('.notice').getByText(sign).waitFor();
  };
  const refresh = (title: string) =>
    card(page, title)
      .getByRole('button', { name: /^Refresh/ })
      .click();
  const failed = async (title: string): Promise<void> => {
    await card(page, title)
      .getByText(/^The last refresh failed\./)
      .waitFor();
  };
  const ageOf = async (): Promise<number> => Date.now() - Date.parse((await fetchedAt(page))!);
  const priceOf = () => quote.locator('.price .pulse').textContent();

  // Ten seconds are what a call may take, time to look at the page as a screen reader does.
  await make('Make it slow', 'The provider is slow');
  for (const title of ['Quote', 'Ratios']) await refresh(title);
  const price = await priceOf();
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    for (const width of [360, 1440]) {
      await page.setViewportSize({ width, height: 900 });
      expect(await violationsIn(page), `at ${width} px, ${colorScheme}`).toEqual([]);
    }
  }
  for (const title of ['Quote', 'Ratios']) await failed(title);
  await quote.getByText('failing', { exact: true }).waitFor();
  expect(await colourOf(quote)).not.toBe(await colourOf(card(page, 'Profile')));

  // Five failures in a row, and it is left alone.
  await make('Take it down', 'The provider is down.');
  // The first of them has failed, or five others were faster and it is not called any more.
  await refresh('Profile');
  await card(page, 'Profile')
    .getByText(/^(The last refresh failed|Its source does not work at the moment)\./)
    .first()
    .waitFor({ timeout: 45_000 });
  for (const title of titles.slice(2)) if (title !== 'Profile') await refresh(title);
  await page
    .locator('.notice')
    .getByText(/pgfresh leaves it alone, and tries one call at/)
    .waitFor({ timeout: 45_000 });
  for (const title of titles) expect(await card(page, title).locator('.bone').count()).toBe(0);
  expect(await priceOf()).toBe(price);
  expect(await ageOf()).toBeGreaterThan(10_000);
  expect(await quote.locator('time').innerText()).toMatch(/[1-9]\d s$|min$/);
  expect(await violationsIn(page)).toEqual([]);
  await keepPicture(page, 'provider-down');

  // It is back, and is tried: that makes it fresh.
  await page.getByRole('button', { name: 'Back to normal' }).click();
  await page.getByRole('button', { name: 'Try it now' }).click();
  // Also what has failed for good meanwhile.
  await db.query(
    `select pgfresh.queue_refresh_if_not_exists(p.key, r.data_type, p_force => true)
     from pgfresh_engine.pairs as p join pgfresh.data_type_registry as r using (type_id) where p.key = $1`,
    [symbol],
  );
  await allFresh();
  await page.locator('.notice').waitFor({ state: 'detached' });

  // A lie is refused, and said to be one.
  const honest = await priceOf();
  await make('Make it lie', 'The provider lies.');
  await refresh('Quote');
  await failed('Quote');
  expect(await priceOf()).toBe(honest);
  expect(complaints).toEqual([]);
}, 90_000);

it('truth 2: shows a stuck cache, an expired key, a renamed field and empty answers for what they are', async () => {
  const databaseUrl = await createDatabase();
  const db = openDatabase(databaseUrl);
  const { url } = await startBoard(databaseUrl);
  const { person, complaints } = await openPerson();
  const page = await openBoard(person, url, symbol);
  const quote = card(page, 'Quote');
  // A quote is fresh for 20 s.
  const word = (text: string) =>
    quote.locator('.freshness').getByText(text, { exact: true }).waitFor({ timeout: 45_000 });
  const why = (text: string) => quote.locator('.why').getByText(text).waitFor({ timeout: 45_000 });
  const provider = (trouble: string) =>
    fetch(`${url}/dev/provider`, { method: 'PUT', body: JSON.stringify({ trouble }) });
  const refresh = () => db.query(`select pgfresh.queue_refresh_if_not_exists($1, 'quote', p_force => true)`, [symbol]);
  const mend = async (): Promise<void> => {
    await provider('none');
    await fetch(`${url}/dev/probe`, { method: 'POST', body: '{}' });
    await refresh();
    await word('fresh');
  };
  await word('fresh');

  // Nothing has changed at the source: it is confirmed, and says when.
  await db.query(`update profiles set fetched_at = fetched_at - interval '2 days' where symbol = $1`, [symbol]);
  const profile = card(page, 'Profile');
  await profile.getByRole('button', { name: /^Refresh/ }).click();
  await profile
    .locator('time')
    .getByText(/confirmed \d+ s$/)
    .waitFor();
  await profile.locator('.why').getByText('Fetched 2 d ago, and unchanged at the source.').waitFor();

  // The row is kept here, and said to be gone.
  await provider('gone');
  await refresh();
  await word('gone at the source');
  await why('The source says that there is nothing.');
  await keepPicture(page, 'provider-gone');
  await mend();

  // Refused answers: what is there goes stale, and fails.
  await provider('changed');
  await refresh();
  await why('The last refresh failed.');
  await word('failing');
  await keepPicture(page, 'provider-changed');
  await mend();

  await provider('stuck');
  await refresh();
  await word('stale at the source');
  await why('The source answers with older data.');
  await quote.getByText('at the source 100 d').waitFor();
  // Five older answers in a row, and quotes are left alone; nothing else is. Those of the list that have failed a moment
  // ago are asked for again after a minute.
  await page
    .locator('.notice')
    .getByText(/pgfresh leaves quote alone, and tries one call at [\d:]+\. All else goes on\.$/)
    .waitFor({ timeout: 100_000 });
  await keepPicture(page, 'provider-stuck');
  await mend();

  await provider('locked');
  await word('stale');
  await why('Its refresh is paused. Until');
  await page
    .locator('.notice')
    .getByText(/^The API key has expired\. pgfresh leaves it alone/)
    .waitFor();
  await keepPicture(page, 'provider-locked');
  expect(await quote.locator('.bone').count()).toBe(0);
  // Nothing of the provider's own words is on the page.
  expect(await page.locator('body').innerText()).not.toMatch(/127\.0\.0\.1|HTTP 401|status 4/);
  expect(complaints).toEqual([]);
}, 300_000);

/** Finds a symbol, watches it, breaks the provider and mends it, without a mouse. */
async function worksByKeyboard(page: Page): Promise<void> {
  const keys = page.keyboard;
  const tabTo = async (name: RegExp): Promise<void> => {
    for (let step = 0; step < 80; step++) {
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
  await tabTo(/^Break the provider/);
  await keys.press('Enter');
  await keys.press('ArrowDown');
  await keys.press('Enter');
  await page.locator('.notice').getByText('The provider is down.').waitFor();
  await tabTo(/^Back to normal$/);
  await keys.press('Enter');
  await page.locator('.notice').waitFor({ state: 'detached' });
  await tabTo(/^DIS\.X/);
  await keys.press('Enter');
  await page.waitForURL(/#DIS\.X$/);
  await card(page, 'Quote').locator('.price').waitFor();
}

/** The same with a mouse, as far as it is another way. */
async function worksByMouse(page: Page): Promise<void> {
  const menu = page.getByRole('menu', { name: 'Break the provider' });
  const button = page.getByRole('button', { name: 'Break the provider' });
  await button.click();
  await menu.waitFor();
  await page.keyboard.press('Escape');
  await menu.waitFor({ state: 'detached' });
  expect(await page.evaluate(nameOfFocused)).toBe('Break the provider');
  await button.click();
  await page.locator('.strip').click();
  await menu.waitFor({ state: 'detached' });
  const search = page.getByRole('combobox', { name: 'Search for a symbol' });
  await search.fill('costco? no');
  await page.getByText('Nothing is called “costco? no”.').waitFor();
  await search.fill('cost');
  await page.getByRole('option', { name: /^COST\.X/ }).click();
  await page.waitForURL(/#COST\.X$/);
  await expect.poll(() => page.title()).toBe('COST.X · pgfresh market');
  await page.emulateMedia({ reducedMotion: 'reduce' });
  expect(await page.evaluate(() => (globalThis as unknown as Browsing).document.getAnimations().length)).toBe(0);
  await page.emulateMedia({ reducedMotion: 'no-preference' });
}

/** What is behind # in the address, anybody can have written. */
async function takesAnyAddress(page: Page): Promise<void> {
  const go = (hash: string) =>
    page.evaluate((text) => void ((globalThis as unknown as Browsing).location.hash = text), hash);
  await go('%E0%A4%A');
  await page.waitForFunction(`document.title === 'META.X · pgfresh market'`);
  await go('x'.repeat(600));
  await page.getByRole('alert').getByText(/XXXX/).first().waitFor();
  await go(symbol.toLowerCase());
  await card(page, 'Quote').locator('.price').waitFor();
}

/** What the strip says, by its names. */
async function figures(page: Page): Promise<Record<string, string>> {
  const tiles = await page.locator('.tile').all();
  const entries = tiles.map(async (tile) => [
    await tile.locator('h2').innerText(),
    await tile.locator('.figure').innerText(),
  ]);
  return Object.fromEntries(await Promise.all(entries)) as Record<string, string>;
}

/** How many quotes the chart shows. */
const pointsOf = async (page: Page): Promise<number> =>
  (await card(page, 'Quote').locator('.chart .line').getAttribute('d'))!.match(/[ML]/g)!.length;

const colourOf = (region: Locator): Promise<string> =>
  region
    .locator('.freshness')
    .evaluate(
      (element) =>
        (globalThis as unknown as { getComputedStyle(of: unknown): { color: string } }).getComputedStyle(element).color,
    );

/** By how much the page is wider than the window. */
function overflowOf(): number {
  const { scrollWidth, clientWidth } = (globalThis as unknown as Browsing).document.documentElement;
  return scrollWidth - clientWidth;
}

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
async function violationsIn(page: Page): Promise<string[]> {
  // Not as a script of the page, which its policy would refuse.
  const found = (await page.evaluate(`${axe.source};axe.run().then(({ violations }) => violations)`)) as Violation[];
  return found
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
}
