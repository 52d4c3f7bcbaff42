import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { problemOf } from '../errors/index.ts';
import { AnswerHeaders } from './answer-headers.ts';
import { framingOf, readBody, type Limits } from './body.ts';
import { isConnected, type Connections } from './connections.ts';
import type { Cost } from './cost.ts';
import type { Deadline } from './deadline.ts';
import { StepFailure } from './step-failure.ts';
import { Head } from './head.ts';
import type { Outgoing } from './outgoing.ts';

/** A complete answer. */
export interface Exchanged {
  readonly status: number;
  readonly headers: AnswerHeaders;
  readonly body: Uint8Array;
  /** Whether it declared its length or has no body. */
  readonly hasLength: boolean;
}

interface Circumstances {
  readonly connections: Connections;
  readonly limits: Limits;
  readonly deadline: Deadline;
  readonly cost: Cost;
  /** Latest time to send it, by `performance.now()`. */
  readonly sendBy: number | undefined;
}

/** One request and its answer. Its cost grows while it runs, so it is known even if the call fails. */
export class Exchange {
  readonly #request: Outgoing;
  readonly #with: Circumstances;
  readonly #result = Promise.withResolvers<Exchanged>();
  readonly #head = new Head();
  #received = 0;
  #socket: Socket | undefined;
  #message: IncomingMessage | undefined;
  #sending: ClientRequest | undefined;
  #stopReading: (() => void) | undefined;
  #forgetDeadline: (() => void) | undefined;

  constructor(request: Outgoing, circumstances: Circumstances) {
    this.#request = request;
    this.#with = circumstances;
  }

  /** Not async: that would cost another promise per call. */
  run(): Promise<Exchanged> {
    this.#forgetDeadline = this.#with.deadline.onEnd((failure) => this.#fail(failure));
    this.#begin();
    return this.#result.promise;
  }

  #begin(): void {
    let sending: ClientRequest;
    try {
      sending = this.#with.connections.open(this.#request);
    } catch (error) {
      this.#forgetDeadline?.();
      throw error instanceof StepFailure ? error : new StepFailure('config', problemOf(error));
    }
    this.#sending = sending;
    sending.on('error', (error: NodeJS.ErrnoException) => this.#fail(this.#failureOf(error)));
    sending.on('socket', (socket) => this.#send(sending, socket));
    sending.on('upgrade', () => this.#fail(new StepFailure('network', 'the answer is another protocol than HTTP')));
    sending.on('response', (message) => this.#read(message));
  }

  #send(sending: ClientRequest, socket: Socket): void {
    this.#socket = socket;
    this.#with.connections.listen(socket, this.#hear);
    const send = (): void => {
      const { sendBy, cost } = this.#with;
      if (sending.destroyed) return;
      if (sendBy !== undefined && performance.now() > sendBy) {
        return this.#fail(new StepFailure('unsent', 'its turn was over before it could be sent'));
      }
      cost.calls++;
      sending.end(this.#request.body);
    };
    if (isConnected(socket)) send();
    else socket.once(this.#request.url.protocol === 'https:' ? 'secureConnect' : 'connect', send);
  }

  readonly #hear = (chunk: Buffer): void => {
    const { cost, limits } = this.#with;
    cost.wireBytes += chunk.length;
    this.#received += chunk.length;
    this.#head.read(chunk);
    if (this.#received > limits.maxWireBytes) {
      this.#fail(new StepFailure('too_large', `more than maxWireBytes, ${limits.maxWireBytes}, have come`));
    }
  };

  #read(message: IncomingMessage): void {
    this.#message = message;
    let framing: ReturnType<typeof framingOf>;
    try {
      framing = framingOf(message, this.#with.limits);
    } catch (error) {
      return this.#fail(error instanceof StepFailure ? error : new StepFailure('network', problemOf(error)));
    }
    message.on('close', () => {
      if (!message.complete) this.#fail(this.#cut(framing.length));
    });
    this.#stopReading = readBody(message, framing.isGzip, this.#with.limits, (body) => {
      if (body instanceof StepFailure) return this.#fail(body);
      const { length, isEmpty } = framing;
      if (length !== undefined && !isEmpty && this.#received - (this.#head.bytes ?? 0) > length) {
        return this.#fail(overlong());
      }
      const headers = new AnswerHeaders(message.rawHeaders);
      const hasLength = isEmpty || length !== undefined;
      this.#forgetDeadline?.();
      // Only on success: after a failure the connection is closed and not reused.
      if (this.#socket) this.#with.connections.unlisten(this.#socket, this.#hear);
      this.#result.resolve({ status: message.statusCode!, headers, body, hasLength });
    });
  }

  #cut(length: number | undefined): StepFailure {
    const came = this.#received - (this.#head.bytes ?? 0);
    const expected = length === undefined ? 'its end' : `the ${length} bytes of its Content-Length`;
    return new StepFailure('network', `the connection was cut after ${came} bytes of the answer, before ${expected}`);
  }

  #failureOf(error: NodeJS.ErrnoException): StepFailure {
    if (error instanceof StepFailure) return error;
    if (error.code === 'HPE_HEADER_OVERFLOW') return new StepFailure('too_large', 'the headers are more than 16 KB');
    if (this.#message?.complete) return overlong();
    // A server may close an idle connection just as it is reused.
    const isStale =
      this.#received === 0 && this.#sending?.reusedSocket === true && /^ECONNRESET$|^EPIPE$/.test(error.code ?? '');
    const code = error.code === undefined || error.message.includes(error.code) ? '' : ` (${error.code})`;
    return new StepFailure('network', `${problemOf(error)}${code}`, { isStale });
  }

  #fail(failure: StepFailure): void {
    this.#forgetDeadline?.();
    this.#result.reject(failure);
    this.#sending?.destroy();
    this.#stopReading?.();
  }
}

function overlong(): StepFailure {
  return new StepFailure('network', 'more bytes came than its Content-Length says');
}
