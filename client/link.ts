import type { Refusal } from './fresh.ts';
import type { ClientMessage, ServerMessage } from './protocol.ts';

/** An open connection to the server, by WebSocket or event stream. Its first message is a welcome. */
export interface Link {
  send(message: ClientMessage): void;
  /** Closes the link. The listener is not called any more. */
  close(): void;
}

export interface LinkListener {
  readonly receive: (message: ServerMessage) => void;
  /** The link has closed, with a close code of docs/reference/protocol.md or another one. */
  readonly end: (code: number, refusal?: Refusal) => void;
}

export type OpenLink = (url: string, token: string | undefined, listener: LinkListener) => Link;
