/** What a page can tell of itself. In Node.js there is none, and nothing ever happens to it. */
interface Page extends Partial<Pick<EventTarget, 'addEventListener' | 'removeEventListener'>> {
  readonly document?: Pick<EventTarget, 'addEventListener' | 'removeEventListener'> & { readonly hidden: boolean };
  readonly navigator?: object;
  readonly location?: { readonly origin: string };
}

const page: () => Page = () => globalThis;

export function isOffline(): boolean {
  const navigator: { readonly onLine?: boolean } | undefined = page().navigator;
  return navigator?.onLine === false;
}

export function isHidden(): boolean {
  return page().document?.hidden === true;
}

/** The server of this page. */
export function ownOrigin(): string | undefined {
  return page().location?.origin;
}

/** Tells when the network or the sight of the page may have changed. Returns how to stop it. */
export function watchSurroundings(tell: (event: string) => void): () => void {
  const { document } = page();
  const listener = ({ type }: Event): void => tell(type);
  const inWindow = ['online', 'offline', 'pageshow'];
  const inDocument = ['visibilitychange', 'resume'];
  // Node.js has no events of its own here.
  for (const name of inWindow) page().addEventListener?.(name, listener);
  for (const name of inDocument) document?.addEventListener(name, listener);
  return () => {
    for (const name of inWindow) page().removeEventListener?.(name, listener);
    for (const name of inDocument) document?.removeEventListener(name, listener);
  };
}
