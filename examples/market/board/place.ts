import { useCallback, useSyncExternalStore } from 'react';

function subscribe(listener: () => void): () => void {
  addEventListener('hashchange', listener);
  return () => removeEventListener('hashchange', listener);
}

const longest = 20;

/** What the address says, which anybody can have written. */
function place(): string {
  try {
    return decodeURIComponent(location.hash.slice(1)).slice(0, longest).toUpperCase();
  } catch {
    return '';
  }
}

/** The symbol that is looked at. It is in the address, so that it can be sent to somebody. */
export function usePlace(usual: string): [string, (symbol: string) => void] {
  const symbol = useSyncExternalStore(subscribe, place, () => '');
  const go = useCallback((next: string) => {
    location.hash = encodeURIComponent(next);
  }, []);
  return [symbol === '' ? usual : symbol, go];
}
