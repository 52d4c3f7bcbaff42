import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Hono } from 'hono';
import { PgfreshError } from '../errors/index.ts';

/** A part of the server that authenticates its clients itself, and may keep connections open. */
export interface Mount {
  /** The prefix of its paths, for instance "/live". */
  readonly path: string;
  readonly routes: (app: Hono) => void;
  /** Handles an HTTP upgrade. The Host header was checked. */
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void;
  /** Closes open connections. Called once the server accepts no new ones. */
  readonly drain: () => Promise<void>;
}

/** Whether a path belongs to the mount. */
export function contains(mount: Pick<Mount, 'path'>, path: string): boolean {
  return path === mount.path || path.startsWith(`${mount.path}/`);
}

export function notFound(path: string): PgfreshError {
  return new PgfreshError('PGF_HTTP_NOT_FOUND', { path });
}

/** Answers an upgrade request with an error, and closes the connection. */
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
