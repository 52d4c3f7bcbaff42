import { longestTimerMs } from './timers.ts';

type Listening = Pick<EventTarget, 'addEventListener'>;

/** The globals of a page. In Node.js they are missing, and no event ever happens. */
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

/** The origin of this page. */
export function pageOrigin(): string | undefined {
  return page.location?.origin;
}

/** Calls the listener when network or visibility may have changed. Returns a function that stops it. */
export function watchPage(listener: (event: string) => void): () => void {
  const stop = new AbortController();
  const listen = (target: Partial<Listening> | undefined, names: readonly string[]): void => {
    for (const name of names) target?.addEventListener?.(name, () => listener(name), stop);
  };
  listen(page, ['online', 'offline', 'pageshow']);
  listen(page.document, ['visibilitychange', 'resume']);
  return () => stop.abort();
}

/** Passes on page events that matter to the connection. `hide` comes once the page was hidden for `hiddenFor`. */
export function followPage(
  hiddenFor: number,
  listener: (event: 'online' | 'offline' | 'hide' | 'show') => void,
): () => void {
  let hiding: ReturnType<typeof setTimeout> | undefined;
  const notice = (event?: string): void => {
    if (event === 'online' || event === 'offline') listener(event);
    if (!isHidden()) {
      clearTimeout(hiding);
      hiding = undefined;
      listener('show');
    } else if (hiddenFor <= longestTimerMs) hiding ??= setTimeout(() => listener('hide'), hiddenFor);
  };
  const stop = watchPage(notice);
  notice();
  return () => {
    stop();
    clearTimeout(hiding);
  };
}
