import { useState, type ReactNode } from 'react';

/** A value that lights up for a moment when it has changed. */
export function Pulse({ value, children }: { readonly value: number | string; readonly children: ReactNode }) {
  const [seen, setSeen] = useState({ value, turn: 0, tone: '' });
  if (seen.value !== value) {
    const tone = typeof value !== 'number' ? 'changed' : value > Number(seen.value) ? 'rose' : 'fell';
    setSeen({ value, turn: seen.turn + 1, tone });
  }
  // Another key is another element, which begins its animation anew.
  return (
    <span key={seen.turn} className={`pulse ${seen.tone}`}>
      {children}
    </span>
  );
}
