import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Hono } from 'hono';
import { PgfreshError } from '../errors/index.ts';

/** A part of the server that asks by itself who comes, and keeps connections open. */
export interface Door {
  /** Where its paths begin, for instance "/live". */
  readonly path: string;
  readonly routes: (app: Hono) => void;
  /** Takes over the connection of a client that wants to speak another protocol. Its Host was checked. */
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void;
  /** Ends what is kept open. Called when the server takes no new connections any more. */
  readonly drain: () => Promise<void>;
}

export function leadsTo(door: Pick<Door, 'path'>, path: string): boolean {
  return path === door.path || path.startsWith(`${door.path}/`);
}

export function nothingAt(path: string): PgfreshError {
  return new PgfreshError('PGF_HTTP_NOT_FOUND', { path });
}

/** Answers a client that asked for another protocol, and ends the connection. */
export function refuseUpgrade(socket: Duplex, status: string, body: object): void {
  const text = JSON.stringify(body);
  const head = [
    `HTTP/1.1 ${status}`,
    'connection: close',
    'content-type: application/json',
    `content-length: ${Buffer.byteLength(text)}`,
  ];
  socket.on('error', () => socket.destroy());
  socket.end(`${head.join('\r\n')}\r\n\r\n${text}`, () => socket.destroy());
}
