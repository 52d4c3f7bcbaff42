import type { ErrorCode } from '../errors/index.ts';
import type { DataState, Reason } from '../planner/index.ts';

/**
 * All sentences that viewers see: one fixed sentence per reason, state and error code. Messages of the database, of a
 * provider or of the configuration's functions are for operators and are never sent.
 */
export const reasonSentences: Readonly<Record<Reason, string>> = {
  queued: 'Its refresh is queued.',
  retry: 'Its refresh will be retried.',
  refused: 'Its source is asked again later.',
  due: 'It will be refreshed in a moment.',
  gate: 'It is not refreshed at this time.',
  dependency: 'It waits for other data.',
  rate: 'It waits because its source limits the number of calls.',
  quota: 'It waits because its source limits the amount of data.',
  concurrency: 'It waits for other refreshes of its source.',
  same_key: 'It waits for another refresh of the same key.',
  breaker: 'Its source does not work at the moment.',
  paused: 'Its refresh is paused.',
  stopped: 'Refreshing is stopped.',
  no_worker: 'It cannot be refreshed at the moment.',
  quarantined: 'It cannot be refreshed at the moment.',
  unresolved: 'It cannot be refreshed at the moment.',
};

/** For pairs that do not wait, and where the reason is not for this viewer. Fresh data needs no sentence. */
export const stateSentences: Readonly<Record<DataState | 'refreshing', string>> = {
  fresh: '',
  stale: 'It is older than it should be.',
  missing: 'There is nothing to see.',
  empty: 'The source says that there is nothing.',
  older_source: 'The source answers with older data.',
  refreshing: 'It is being refreshed.',
};

export const failedSentence = {
  code: 'PGF_LIVE_REFRESH_FAILED',
  message: 'The last refresh failed.',
  next: 'It is retried automatically.',
} as const satisfies { readonly code: ErrorCode; readonly message: string; readonly next: string };

interface RefusalSentence {
  /** The HTTP status; the close code of a WebSocket is 4000 plus this. */
  readonly status: 400 | 401 | 403 | 404 | 408 | 413 | 429 | 503;
  readonly message: string;
  readonly next: string;
}

/** `{limit}` is from the configuration; `{problem}`, `{known}` and `{got}` are about the client's own message. */
export const refusalSentences = {
  PGF_LIVE_TOKEN: {
    status: 401,
    message: 'The token is missing, invalid or expired.',
    next: 'Log in again and connect with the new token.',
  },
  PGF_LIVE_ORIGIN: {
    status: 403,
    message: 'Pages of this site may not connect here.',
    next: 'Open the page from an allowed origin.',
  },
  PGF_LIVE_FORBIDDEN: {
    status: 403,
    message: 'You may not view this.',
    next: 'Ask the operator of the server for access.',
  },
  PGF_LIVE_PRIVATE: {
    status: 403,
    message: 'This shows each user their own rows, and you have no access.',
    next: 'Log in, or ask the operator of the server for access.',
  },
  PGF_LIVE_ROLE: {
    status: 403,
    message: 'Your role cannot be used to read this.',
    next: 'Ask the operator of the server for access.',
  },
  PGF_LIVE_UNDECIDED: {
    status: 503,
    message: 'Could not check whether you may view this.',
    next: 'Ask for it again in a moment.',
  },
  PGF_LIVE_PROTOCOL: {
    status: 400,
    message: 'This server speaks version {known} of its protocol, and the client {got}.',
    next: 'Send hello with "protocol": {known} first; see docs/reference/protocol.md.',
  },
  PGF_LIVE_MESSAGE: {
    status: 400,
    message: 'The message cannot be understood: {problem}',
    next: 'See docs/reference/protocol.md. None of the message was processed.',
  },
  PGF_LIVE_TOO_LARGE: {
    status: 413,
    message: 'The message is larger than {limit} bytes.',
    next: 'Split the pairs over several messages: want, then add.',
  },
  PGF_LIVE_TOO_FAST: {
    status: 429,
    message: 'More than {limit} messages per second were received.',
    next: 'Combine changes into one message, and reconnect.',
  },
  PGF_LIVE_TOO_MANY_CONNECTIONS: {
    status: 429,
    message: 'There are too many connections.',
    next: 'Close those that are not needed; one connection per page is enough.',
  },
  PGF_LIVE_TOO_MANY_PAIRS: {
    status: 429,
    message: 'No more than {limit} pairs can be viewed at a time.',
    next: 'Drop pairs that are no longer on the screen.',
  },
  PGF_LIVE_TOO_MANY_NEW_PAIRS: {
    status: 429,
    message: 'You asked for more than {limit} new pairs within a minute.',
    next: 'Ask again in a minute.',
  },
  PGF_LIVE_TOO_MANY_REFRESHES: {
    status: 429,
    message: 'You asked for more than {limit} refreshes within a minute.',
    next: 'Wait: viewed pairs are refreshed when they are due.',
  },
  PGF_LIVE_SLOW: {
    status: 408,
    message: 'The client did not read what was sent to it.',
    next: 'Reconnect, and send the versions that the client has.',
  },
  PGF_LIVE_BUSY: {
    status: 503,
    message: 'The server cannot answer at the moment.',
    next: 'Try again in a few seconds.',
  },
  PGF_LIVE_STOPPING: {
    status: 503,
    message: 'This server is stopping.',
    next: 'Reconnect; another server will accept you.',
  },
  PGF_LIVE_SESSION: {
    status: 404,
    message: 'There is no such event stream.',
    next: 'Open /live/events again and take the session from its first message.',
  },
  PGF_KEY_INVALID: {
    status: 400,
    message: 'This is not a valid key.',
    next: 'A key has 1 to 512 bytes and no control characters.',
  },
  PGF_KEY_UNKNOWN: {
    status: 404,
    message: 'There is no such key.',
    next: 'Check the spelling of the key.',
  },
  PGF_TYPE_UNKNOWN: {
    status: 404,
    message: 'There is no such data type.',
    next: 'Check the name of the data type.',
  },
} as const satisfies Partial<Record<ErrorCode, RefusalSentence>>;

export type RefusalCode = keyof typeof refusalSentences;
