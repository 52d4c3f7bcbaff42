import { mkdir } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Browser, BrowserContext, BrowserContextOptions, Page } from 'playwright-core';
import { atEnd } from '../../harness/database.ts';
import { openBrowser } from '../../harness/browser.ts';
import { temporaryFolder } from '../../harness/folder.ts';
import { CliProcess } from '../../harness/process.ts';

const config = ['--config', resolve('examples/market/pgfresh.config.ts')];
let browser: Promise<Browser> | undefined;
const artefacts = resolve('artefacts/board');

export interface BoardServer {
  readonly child: CliProcess;
  readonly url: string;
  readonly provider: string;
}

/** `npm start`, on a database and a port, without simulated people: every call is that of a page. */
export async function startBoard(databaseUrl: string, port = '0'): Promise<BoardServer> {
  const cwd = await temporaryFolder('board');
  const env = { DATABASE_URL: databaseUrl, PGFRESH_PORT: port, PGFRESH_LOG_LEVEL: 'silent', MARKET_VIEWERS: '0' };
  const child = new CliProcess(['dev', '--json', ...config], { cwd, env });
  await child.printed(/"Mend it": .*\n.*\}\n\}/);
  const { url, notes } = JSON.parse(child.stdout) as { url: string; notes: Record<string, string> };
  return { child, url, provider: /^http:\S+(?=,)/.exec(notes['Provider']!)![0] };
}

/** A person's browser, and everything that it complains about. */
export async function openPerson(
  options: BrowserContextOptions = {},
): Promise<{ person: BrowserContext; complaints: string[] }> {
  browser ??= openBrowser();
  const person = await (await browser).newContext({ viewport: { width: 1440, height: 1000 }, ...options });
  person.setDefaultTimeout(15_000);
  atEnd(() => person.close());
  const complaints: string[] = [];
  person.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
  });
  person.on('weberror', (error) => complaints.push(error.error().message));
  return { person, complaints };
}

/** Opens the board at a symbol, and sees that the quote of it is there and fresh. */
export async function openBoard(person: BrowserContext, url: string, symbol: string): Promise<Page> {
  const page = await person.newPage();
  await page.addInitScript(noteVersions);
  await page.goto(`${url}/#${symbol}`);
  await card(page, 'Quote').locator('.price').waitFor();
  return page;
}

export function card(page: Page, title: string) {
  return page.getByRole('region', { name: title, exact: true });
}

export interface Noted {
  readonly at: number;
  readonly version: string;
}

declare global {
  // What `noteVersions` keeps in a page: each version that the quote had, and when the page showed it.
  var noted: Noted[];
}

function noteVersions(): void {
  globalThis.noted = [];
  const document = (
    globalThis as unknown as { document: { querySelector(text: string): { dataset: Record<string, string> } | null } }
  ).document;
  const look = (): void => {
    const version = document.querySelector('.card.quote')?.dataset['version'];
    if (version && globalThis.noted.at(-1)?.version !== version) globalThis.noted.push({ at: Date.now(), version });
    (globalThis as unknown as { requestAnimationFrame(act: () => void): void }).requestAnimationFrame(look);
  };
  look();
}

/** The versions of the quote that a page has shown, in their order. */
export const notedBy = (page: Page): Promise<Noted[]> => page.evaluate(() => globalThis.noted);

/** Kept for whoever wants to see what the tests saw. */
export async function keepPicture(page: Page, name: string, isFull = true): Promise<void> {
  await mkdir(artefacts, { recursive: true });
  await page.screenshot({ path: `${artefacts}/${name}.png`, fullPage: isFull });
}
