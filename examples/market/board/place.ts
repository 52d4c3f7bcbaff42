import { useCallback, useSyncExternalStore } from 'react';

function subscribe(listener: () => void): () => void {
  addEventListener('hashchange', listener);
  return () => removeEventListener('hashchange', listener);
}

const longest = 20;

/** The address, which anyone may have edited. */
function place(): string {
  try {
    return decodeURIComponent(location.hash.slice(1)).slice(0, longest).toUpperCase();
  } catch {
    return '';
  }
}

/** The selected symbol. It is in the address, so that it can be shared. */
export function usePlace(usual: string): [string, (symbol: string) => void] {
  const symbol = useSyncExternalStore(subscribe, place, () => '');
  const go = useCallback((next: string) => {
    location.hash = encodeURIComponent(next);
  }, []);
  return [symbol === '' ? usual : symbol, go];
}
