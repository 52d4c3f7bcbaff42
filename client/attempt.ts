import { Conversation } from './conversation.ts';
import { refusalOf, type Refusal } from './fresh.ts';
import type { Link, OpenLink } from './link.ts';
import type { Pairs } from './pairs.ts';
import type { ServerMessage } from './protocol.ts';
import { noToken, unreachable } from './refusals.ts';
import { Timers } from './timers.ts';

export type Token = string | (() => string | undefined | Promise<string | undefined>) | undefined;

export interface AttemptOptions {
  readonly pairs: Pairs;
  readonly url: string;
  readonly token: Token;
  readonly openLink: OpenLink;
  /** The server sent its welcome. */
  readonly onOpen: () => void;
  /** The attempt has ended, for good or until the next one, for which the server may set a delay. */
  readonly onEnd: (why: Refusal, isFinal: boolean, afterMs: number | undefined) => void;
}

/** One connection attempt, from the token to the close of the link. */
export interface Attempt {
  /** Defined once the server has sent its welcome. */
  readonly conversation: Conversation | undefined;
  /** Checks the link after the page or the machine has slept. */
  wake(): void;
  /** Ends the attempt without calling `onEnd`. */
  stop(): void;
}

export function startAttempt(options: AttemptOptions): Attempt {
  // Local, so that a bundler can inline them.
  const welcomeMs = 10_000;
  const pingMs = 10_000;
  const wakingMs = 3_000;
  const requestAgainMs = 60_000;
  const { pairs, url, token, openLink, onOpen, onEnd } = options;
  const { clock } = pairs;
  const timers = new Timers<'silence' | 'token' | 'again'>();
  let conversation: Conversation | undefined;
  let link: Link | undefined;
  let isOver = false;
  /** Whether a message arrived since the last check. */
  let isAlive = false;
  /** Whether a ping is unanswered. */
  let isPinged = false;
  let lastError: Refusal | undefined;
  let afterMs: number | undefined;

  const open = async (): Promise<void> => {
    timers.start('silence', welcomeMs, () => end());
    try {
      const given = typeof token === 'function' ? await token() : token;
      if (!isOver) link = openLink(url, given, { receive, end });
    } catch (error) {
      end(0, noToken(error));
    }
  };
  const stop = (): void => {
    isOver = true;
    conversation = undefined;
    timers.stop();
    link?.close();
  };
  const end = (code = 0, refusal?: Refusal): void => {
    if (isOver) return;
    stop();
    const isFinal = code === 4400 || code === 4403 || (code === 4401 && typeof token !== 'function');
    onEnd(refusal ?? lastError ?? unreachable(url), isFinal, afterMs);
  };

  const receive = (message: ServerMessage): void => {
    isAlive = true;
    switch (message.type) {
      case 'welcome':
        clock.set(message.now);
        if (!conversation) begin(message.limits.message_bytes);
        return renew(message.expires_at);
      case 'authenticated':
        return renew(message.expires_at);
      case 'pong':
        return clock.set(message.now);
      case 'reconnect':
        afterMs = message.after_ms;
        return undefined;
      case 'error':
        lastError = refusalOf(message);
        return undefined;
      default:
        return conversation?.receive(message);
    }
  };
  const begin = (messageBytes: number): void => {
    conversation = new Conversation(pairs, (message) => link!.send(message), messageBytes);
    conversation.begin();
    listen(pingMs);
    askAgain();
    onOpen();
  };

  /** Pings a server that has been silent, and gives up if it does not answer. */
  const listen = (ms: number): void =>
    timers.start('silence', ms, () => {
      if (isAlive) isPinged = false;
      else if (isPinged) return end();
      else ping();
      isAlive = false;
      return listen(pingMs);
    });
  const ping = (): void => {
    isAlive = false;
    isPinged = true;
    link!.send({ type: 'ping' });
  };
  const askAgain = (): void =>
    timers.start('again', requestAgainMs, () => {
      conversation!.askAgain();
      askAgain();
    });

  /** Sends the next token before this one expires. */
  const renew = (expiresAt: string | null): void => {
    if (isOver || expiresAt === null || typeof token !== 'function') return;
    const leftMs = Date.parse(expiresAt) - clock.now();
    timers.start('token', Math.max(1_000, leftMs - Math.min(30_000, leftMs / 3)), async () => {
      const next = await Promise.resolve()
        .then(token)
        .catch(() => undefined);
      if (next === undefined) renew(expiresAt);
      else if (!isOver) link!.send({ type: 'auth', token: next });
    });
  };

  void open();
  return {
    get conversation() {
      return conversation;
    },
    wake() {
      if (!conversation) return;
      ping();
      listen(wakingMs);
    },
    stop,
  };
}
