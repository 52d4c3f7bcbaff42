import type { ReactNode } from 'react';
import { Pulse } from './pulse.tsx';

/** Names with their values. */
export function Facts({ facts }: { readonly facts: readonly (readonly [name: string, value: ReactNode])[] }) {
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{typeof value === 'string' ? <Pulse value={value}>{value}</Pulse> : value}</dd>
        </div>
      ))}
    </dl>
  );
}
