import type { Fault, Wire } from './fault.ts';

/** Answers that break HTTP or never end. */
export const wireFaults = {
  down: {
    what: 'resets the connection',
    outcome: 'network',
    wire: ({ response }) => void response.socket!.resetAndDestroy(),
  },
  hang_up: {
    what: 'ends the connection without an answer',
    outcome: 'network',
    wire: ({ response }) => void response.socket!.end(),
  },
  slow: {
    what: 'answers, but only after 30 s (or as many as are ordered)',
    outcome: 'timeout',
    wire: (wire, { seconds = 30 }) => wire.every(seconds, () => finish(wire)),
  },
  silent: { what: 'takes the request and never answers', outcome: 'timeout', wire: () => {} },
  stall: {
    what: 'sends half of the body and then nothing',
    outcome: 'timeout',
    wire: (wire) => {
      const { body } = wire.reply;
      head(wire, body.length).write(body.subarray(0, body.length >> 1));
    },
  },
  trickle: {
    what: 'sends a byte a second (or whenever it is ordered)',
    outcome: 'timeout',
    wire: (wire, { seconds = 1 }) => {
      const { body } = wire.reply;
      const response = head(wire, body.length);
      let sent = 0;
      response.write(body.subarray(0, ++sent));
      wire.every(seconds, () => {
        if (sent < body.length) response.write(body.subarray(sent, ++sent));
        else if (!response.writableEnded) response.end();
      });
    },
  },
  length_too_long: {
    what: 'announces 100 bytes more than come, and waits',
    outcome: 'timeout',
    wire: (wire) => void head(wire, wire.reply.body.length + 100).write(wire.reply.body),
  },
  length_never_filled: {
    what: 'announces 100 bytes more than come, and hangs up',
    outcome: 'network',
    wire: (wire) => {
      head(wire, wire.reply.body.length + 100).write(wire.reply.body);
      wire.response.socket!.end();
    },
  },
  length_too_short: {
    what: 'announces 20 bytes less than come',
    outcome: 'network',
    wire: (wire) => void head(wire, wire.reply.body.length - 20).end(wire.reply.body),
  },
  length_huge: {
    what: 'announces 10 GB',
    outcome: 'too_large',
    wire: (wire) => void head(wire, 10_000_000_000).write(wire.reply.body),
  },
  cut_body: {
    what: 'resets the connection in the middle of the body',
    outcome: 'network',
    wire: (wire) => {
      const { body } = wire.reply;
      head(wire, body.length).write(body.subarray(0, body.length >> 1), () => wire.response.socket?.resetAndDestroy());
    },
  },
  cut_chunks: {
    what: 'ends the connection before the last chunk',
    outcome: 'network',
    wire: (wire) => {
      head(wire).write(wire.reply.body);
      wire.response.socket!.end();
    },
  },
  bad_chunk: {
    what: 'has a chunk whose size is no number',
    outcome: 'network',
    wire: (wire) =>
      raw(
        wire,
        'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n',
      ),
  },
  not_http: { what: 'does not speak HTTP', outcome: 'network', wire: (wire) => raw(wire, 'SSH-2.0-OpenSSH_9.6\r\n') },
  huge_headers: {
    what: 'has a header of 1 MB',
    outcome: 'too_large',
    wire: (wire) => raw(wire, `HTTP/1.1 200 OK\r\nx-noise: ${'n'.repeat(1_000_000)}\r\ncontent-length: 2\r\n\r\n{}`),
  },
  huge_body: {
    what: 'sends a body of 256 MB',
    outcome: 'too_large',
    wire: (wire) => {
      const response = head(wire);
      const chunk = Buffer.alloc(65_536, 'n');
      let left = 4_096;
      response.write('{"noise":"');
      const more = (): void => {
        while (left-- > 0) if (!response.write(chunk)) return void response.once('drain', more);
        response.end('"}');
      };
      more();
    },
  },
} as const satisfies Record<string, Fault>;

/** Sends the headers; chunked, if there is no length. */
function head({ response, reply }: Wire, length?: number) {
  const { ['content-encoding']: _packed, ...headers } = reply.headers;
  return response.writeHead(
    reply.status,
    length === undefined ? headers : { ...headers, 'content-length': String(length) },
  );
}

function finish({ response, reply }: Wire): void {
  if (response.headersSent) return;
  response.writeHead(reply.status, { ...reply.headers, 'content-length': String(reply.body.length) });
  response.end(reply.body);
}

function raw({ response }: Wire, bytes: string): void {
  response.socket!.end(bytes);
}
