import { useState } from 'react';

const kept = 90;

/** The values that something had, the last ones; one for each time that it was read. */
export function useTrail(value: number | undefined, readAt: string | undefined): readonly number[] {
  const [trail, setTrail] = useState<{ readonly at: string | undefined; readonly values: readonly number[] }>({
    at: undefined,
    values: [],
  });
  if (value !== undefined && readAt !== trail.at)
    setTrail({ at: readAt, values: [...trail.values, value].slice(-kept) });
  return trail.values;
}
