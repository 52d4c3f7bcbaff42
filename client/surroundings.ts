import { longestTimerMs } from './timers.ts';

type Listening = Pick<EventTarget, 'addEventListener'>;

/** What a page can tell of itself. In Node.js there is none, and nothing ever happens to it. */
interface Page extends Partial<Listening> {
  readonly document?: Listening & { readonly hidden: boolean };
  readonly navigator?: object;
  readonly location?: { readonly origin: string };
}

const page: Page = globalThis;

export function isOffline(): boolean {
  const navigator: { readonly onLine?: boolean } | undefined = page.navigator;
  return navigator?.onLine === false;
}

export function isHidden(): boolean {
  return page.document?.hidden === true;
}

/** The server of this page. */
export function ownOrigin(): string | undefined {
  return page.location?.origin;
}

/** Tells when the network or the sight of the page may have changed. Returns how to stop it. */
export function watchSurroundings(tell: (event: string) => void): () => void {
  const stop = new AbortController();
  const listen = (target: Partial<Listening> | undefined, names: readonly string[]): void => {
    for (const name of names) target?.addEventListener?.(name, () => tell(name), stop);
  };
  listen(page, ['online', 'offline', 'pageshow']);
  listen(page.document, ['visibilitychange', 'resume']);
  return () => stop.abort();
}

/** Tells what happens to the page and matters to its connection. It is hidden when it has been so for `hiddenFor`. */
export function followPage(
  hiddenFor: number,
  tell: (event: 'online' | 'offline' | 'hide' | 'show') => void,
): () => void {
  let hiding: ReturnType<typeof setTimeout> | undefined;
  const notice = (event?: string): void => {
    if (event === 'online' || event === 'offline') tell(event);
    if (!isHidden()) {
      clearTimeout(hiding);
      hiding = undefined;
      tell('show');
    } else if (hiddenFor <= longestTimerMs) hiding ??= setTimeout(() => tell('hide'), hiddenFor);
  };
  const stop = watchSurroundings(notice);
  notice();
  return () => {
    stop();
    clearTimeout(hiding);
  };
}
