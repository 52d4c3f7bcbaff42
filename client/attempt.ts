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
  /** The server has said welcome. */
  readonly onOpen: () => void;
  /** It has ended, for good or until the next attempt, which the server may want to be so much later. */
  readonly onEnd: (why: Refusal, isFinal: boolean, afterMs: number | undefined) => void;
}

/** One attempt to have a connection: from its token through all that is said to its end. */
export interface Attempt {
  /** What is said over it, as soon as there is a welcome. */
  readonly conversation: Conversation | undefined;
  /** Whoever slept does not know whether his connection is still there. */
  wake(): void;
  /** Ends it without a word. */
  stop(): void;
}

export function startAttempt(options: AttemptOptions): Attempt {
  // In here, where a bundler puts their values in place.
  const welcomeMs = 10_000;
  const beatMs = 10_000;
  const wakingMs = 3_000;
  const askAgainMs = 60_000;
  const { pairs, url, token, openLink, onOpen, onEnd } = options;
  const { clock } = pairs;
  const timers = new Timers<'silence' | 'token' | 'again'>();
  let conversation: Conversation | undefined;
  let link: Link | undefined;
  let isOver = false;
  /** Whether something was heard since it was last looked at, */
  let isHeard = false;
  /** and whether a sign of life was asked for. */
  let isAsked = false;
  let said: Refusal | undefined;
  let afterMs: number | undefined;

  const open = async (): Promise<void> => {
    timers.start('silence', welcomeMs, () => end());
    try {
      const given = typeof token === 'function' ? await token() : token;
      if (!isOver) link = openLink(url, given, { hear, end });
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
    onEnd(refusal ?? said ?? unreachable(url), isFinal, afterMs);
  };

  const hear = (message: ServerMessage): void => {
    isHeard = true;
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
        said = refusalOf(message);
        return undefined;
      default:
        return conversation?.hear(message);
    }
  };
  const begin = (messageBytes: number): void => {
    conversation = new Conversation(pairs, (message) => link!.send(message), messageBytes);
    conversation.begin();
    listen(beatMs);
    askAgain();
    onOpen();
  };

  /** Asks for a sign of life where nothing was heard, and gives up if there is none. */
  const listen = (ms: number): void =>
    timers.start('silence', ms, () => {
      if (isHeard) isAsked = false;
      else if (isAsked) return end();
      else ping();
      isHeard = false;
      return listen(beatMs);
    });
  const ping = (): void => {
    isHeard = false;
    isAsked = true;
    link!.send({ type: 'ping' });
  };
  const askAgain = (): void =>
    timers.start('again', askAgainMs, () => {
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
