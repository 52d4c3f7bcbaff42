import { gzipSync } from 'node:zlib';
import type { ServerResponse } from 'node:http';

/** An answer before it is put on the wire. */
export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

export function jsonReply(document: unknown, status = 200, headers: Readonly<Record<string, string>> = {}): Reply {
  return {
    status,
    headers: { 'content-type': 'application/json; charset=utf-8', ...headers },
    body: Buffer.from(JSON.stringify(document)),
  };
}

/** An error as this API tells it. */
export function errorReply(status: number, code: string, message: string, headers?: Readonly<Record<string, string>>) {
  return jsonReply({ error: { code, message } }, status, headers);
}

/** Packed, if the client takes it. */
export function packed(reply: Reply, accepted: string | undefined): Reply {
  if (!takesGzip(accepted) || reply.body.length === 0) return reply;
  return {
    ...reply,
    headers: { ...reply.headers, 'content-encoding': 'gzip', vary: 'accept-encoding' },
    body: gzipSync(reply.body),
  };
}

export function send(response: ServerResponse, { status, headers, body }: Reply): void {
  const length = status === 204 ? {} : { 'content-length': String(body.length) };
  response.writeHead(status, { ...length, ...headers });
  response.end(body);
}

function takesGzip(accepted = ''): boolean {
  return accepted.split(',').some((one) => /^\s*(gzip|\*)\s*(;\s*q=(?!0(\.0*)?\s*$).*)?$/i.test(one));
}
