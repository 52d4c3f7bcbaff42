import { useEffect, useState } from 'react';

/** Polls a route while the page is visible. Keeps the last answer when a poll fails. */
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- What a route answers, the caller knows.
export function usePolled<T>(path: string, everyMs: number, isOn = true): { value: T | undefined; again: () => void } {
  const [value, setValue] = useState<T>();
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async (): Promise<void> => {
      try {
        const response = await fetch(path, { signal: stop.signal });
        if (response.ok) setValue((await response.json()) as T);
      } catch {
        // The connection says on its own that the server is away.
      }
      if (!stop.signal.aborted && !document.hidden) timer = setTimeout(() => void ask(), everyMs);
    };
    const look = (): void => {
      clearTimeout(timer);
      if (!document.hidden) void ask();
    };
    if (isOn) look();
    document.addEventListener('visibilitychange', look);
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', look);
    };
  }, [path, everyMs, isOn, turn]);
  return { value, again: () => setTurn((count) => count + 1) };
}
