/** Where the connection is; docs/guides/showing-data.md says what each means. */
export type Status = 'idle' | 'connecting' | 'live' | 'waiting' | 'offline' | 'resting' | 'refused' | 'closed';

/** The same, as one tab among several sees it: another one may have the connection. */
export type ConnectionState = Status | 'following';

/** What can happen to it. */
export type ConnectionEvent =
  /** Somebody looks at a pair. */
  | 'want'
  /** Nobody does any more. */
  | 'leave'
  /** Another tab has the connection, */
  | 'follow'
  /** and now this one is to have it. */
  | 'lead'
  /** The server has said welcome. */
  | 'open'
  /** The connection broke, or could not be made. */
  | 'lose'
  /** The server does not want this client, now or later. */
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

/** As long as somebody looks, there is a network and the page is seen. */
const trying = (state: ConnectionState): Record<ConnectionEvent, ConnectionState> => ({
  ...staying(state),
  leave: 'idle',
  offline: 'offline',
  hide: 'resting',
});

/** Every state with everything that can happen in it. */
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
