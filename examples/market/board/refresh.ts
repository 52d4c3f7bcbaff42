import type { Fresh, FreshError, RefreshResult } from 'pgfresh/client';
import { useState } from 'react';

export type Refreshable = Fresh<unknown> & { readonly refreshNow: () => Promise<RefreshResult> };

interface Asked {
  /** The version to be replaced. The next one ends this state. */
  readonly version: string | null;
  /** Why the refresh was refused. */
  readonly answer?: string;
}

/** Requests a newer value, and tracks whether one is coming. */
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
