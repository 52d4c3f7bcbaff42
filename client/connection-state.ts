/** The status of the connection; docs/guides/showing-data.md explains each value. */
export type Status = 'idle' | 'connecting' | 'live' | 'waiting' | 'offline' | 'resting' | 'refused' | 'closed';

/** The same, for a tab that may follow the tab that has the connection. */
export type ConnectionState = Status | 'following';

/** Events that change the state. */
export type ConnectionEvent =
  /** The first pair is viewed. */
  | 'want'
  /** The last pair is no longer viewed. */
  | 'leave'
  /** Another tab is the leader. */
  | 'follow'
  /** This tab has become the leader. */
  | 'lead'
  /** The server sent its welcome. */
  | 'open'
  /** The connection broke, or could not be opened. */
  | 'lose'
  /** The server refused this client for good. */
  | 'refuse'
  /** The pause before the next attempt is over. */
  | 'retry'
  | 'offline'
  | 'online'
  /** The page has been hidden for long enough. */
  | 'hide'
  | 'show'
  | 'close';

const staying = (state: ConnectionState): Record<ConnectionEvent, ConnectionState> => ({
  want: state,
  leave: state,
  follow: state,
  lead: state,
  open: state,
  lose: state,
  refuse: state,
  retry: state,
  offline: state,
  online: state,
  hide: state,
  show: state,
  close: 'closed',
});

/** States that hold while pairs are viewed, the network is up and the page is visible. */
const trying = (state: ConnectionState): Record<ConnectionEvent, ConnectionState> => ({
  ...staying(state),
  leave: 'idle',
  offline: 'offline',
  hide: 'resting',
});

/** The next state for every state and event. */
export const transitions: Readonly<Record<ConnectionState, Readonly<Record<ConnectionEvent, ConnectionState>>>> = {
  idle: { ...staying('idle'), want: 'connecting' },
  connecting: { ...trying('connecting'), follow: 'following', open: 'live', lose: 'waiting', refuse: 'refused' },
  live: { ...trying('live'), lose: 'waiting', refuse: 'refused' },
  waiting: { ...trying('waiting'), retry: 'connecting', online: 'connecting', show: 'connecting' },
  following: { ...trying('following'), lead: 'connecting' },
  offline: { ...trying('offline'), online: 'connecting' },
  resting: { ...staying('resting'), leave: 'idle', show: 'connecting' },
  refused: { ...staying('refused'), leave: 'idle' },
  closed: staying('closed'),
};
