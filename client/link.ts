import type { Refusal } from './fresh.ts';
import type { ClientMessage, ServerMessage } from './protocol.ts';

/** One way to a server, whatever it is made of. It begins with a welcome. */
export interface Link {
  send(message: ClientMessage): void;
  /** Ends it. Nothing is heard of it any more. */
  close(): void;
}

export interface LinkListener {
  readonly hear: (message: ServerMessage) => void;
  /** It has ended, by the close code of docs/reference/protocol.md or by another one. */
  readonly end: (code: number, refusal?: Refusal) => void;
}

export type OpenLink = (url: string, token: string | undefined, listener: LinkListener) => Link;
