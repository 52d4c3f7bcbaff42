import type { Status } from 'pgfresh/client';
import { useFreshStatus } from 'pgfresh/react';
import { useEffect, useState } from 'react';

/** How the connection looks to a person, who does not care which attempt this is. */
export type Connection = 'starting' | 'live' | 'away' | 'offline' | 'resting' | 'refused';

const looks: Readonly<Record<Status, Connection>> = {
  idle: 'starting',
  connecting: 'starting',
  live: 'live',
  waiting: 'away',
  offline: 'offline',
  resting: 'resting',
  refused: 'refused',
  closed: 'refused',
};

export function useConnection(): Connection {
  const status = useFreshStatus();
  const [wasTried, setTried] = useState(false);
  useEffect(() => {
    if (status === 'live' || status === 'waiting') setTried(true);
  }, [status]);
  const shown = looks[status];
  return shown === 'starting' && wasTried ? 'away' : shown;
}

const words: Readonly<Record<Connection, string>> = {
  starting: 'Connecting',
  live: 'Live',
  away: 'Server away',
  offline: 'Offline',
  resting: 'Resting',
  refused: 'Refused',
};

/** Whether what is on the page is kept up to date. */
export function ConnectionSign({ connection }: { readonly connection: Connection }) {
  const tone = connection === 'live' ? 'good' : connection === 'starting' || connection === 'resting' ? '' : 'bad';
  return (
    <p className={`connection ${tone}`} role="status">
      <span className="dot" aria-hidden="true" />
      {words[connection]}
    </p>
  );
}
