import type { Fresh, FreshError, RefreshResult } from 'pgfresh/client';
import { useState } from 'react';

export type Refreshable = Fresh<unknown> & { readonly refreshNow: () => Promise<RefreshResult> };

interface Asked {
  /** The version that somebody wanted to be replaced. With the next one, all this is over. */
  readonly version: string | null;
  /** Why nothing comes of it. */
  readonly answer?: string;
}

/** Asks for a newer value, and knows whether one is on its way. */
export function useRefresh({ version, refreshNow }: Refreshable): {
  readonly isAsked: boolean;
  readonly answer: string | undefined;
  readonly ask: () => void;
} {
  const [asked, setAsked] = useState<Asked>();
  const current = asked?.version === version ? asked : undefined;
  const ask = (): void => {
    setAsked({ version });
    refreshNow().then(
      (result) => {
        if (result === 'recent') setAsked({ version, answer: 'Somebody has asked for it just now.' });
      },
      (error: unknown) => setAsked({ version, answer: (error as FreshError).message }),
    );
  };
  return { isAsked: current !== undefined && current.answer === undefined, answer: current?.answer, ask };
}
