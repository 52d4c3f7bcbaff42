import type { LookupAddress } from 'node:dns';
import { Agent as HttpAgent, request as httpRequest, type ClientRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { isIP, type LookupFunction, type Socket } from 'node:net';
import { StepFailure } from './step-failure.ts';
import { Names } from './names.ts';
import type { Outgoing } from './outgoing.ts';
import { isPublicAddress } from './public-address.ts';

/** A socket, and the current listener for its bytes. */
interface Line {
  listener: ((chunk: Buffer) => void) | undefined;
  heard: number;
}

/** Called for bytes that arrive without a pending request, or after its answer was given up. */
type StrayListener = (bytes: number, when: 'idle' | 'given up') => void;

/**
 * The connections to a source.
 *
 * node:http instead of fetch, because this needs the socket: to count its bytes as the provider does, before
 * decoding, and to check the resolved address before connecting to it.
 */
export class Connections {
  readonly #allowPrivate: boolean;
  readonly #onStray: StrayListener;
  readonly #names: Names;
  readonly #lines = new WeakMap<Socket, Line>();
  // More parallel calls than this make no provider faster. All are kept open: a new connection costs more than a call.
  readonly #pool = { keepAlive: true, maxSockets: 256, maxFreeSockets: 256, timeout: 30_000 } as const;
  readonly #http = new HttpAgent(this.#pool);
  readonly #https = new HttpsAgent(this.#pool);

  constructor(allowPrivate: boolean, onStray: StrayListener, names = new Names()) {
    this.#names = names;
    this.#allowPrivate = allowPrivate;
    this.#onStray = onStray;
  }

  /** A connecting request; nothing is sent until its `end` is called. */
  open({ method, url, headers, body }: Outgoing): ClientRequest {
    const hostname = url.hostname.replace(/^\[|\]$/g, '');
    // An IP address as host skips the lookup, and with it the check there.
    if (isIP(hostname) !== 0) this.#refusePrivate([hostname], hostname);
    const isTls = url.protocol === 'https:';
    return (isTls ? httpsRequest : httpRequest)({
      agent: isTls ? this.#https : this.#http,
      method,
      hostname,
      port: url.port,
      path: `${url.pathname}${url.search}`,
      headers: {
        ...headers,
        'accept-encoding': 'gzip',
        ...(body === undefined ? {} : { 'content-length': Buffer.byteLength(body) }),
      },
      lookup: this.#lookup,
      maxHeaderSize: 16_384,
      insecureHTTPParser: false,
    });
  }

  /** Calls the listener for every chunk of the socket, before it is parsed. */
  listen(socket: Socket, listener: (chunk: Buffer) => void): void {
    this.#lineOf(socket).listener = listener;
  }

  /** Removes the listener, unless the socket already serves another request. */
  unlisten(socket: Socket, listener: (chunk: Buffer) => void): void {
    const line = this.#lines.get(socket);
    if (line?.listener === listener) line.listener = undefined;
  }

  close(): void {
    this.#http.destroy();
    this.#https.destroy();
  }

  #lineOf(socket: Socket): Line {
    const known = this.#lines.get(socket);
    if (known) return known;
    const line: Line = { listener: undefined, heard: 0 };
    this.#lines.set(socket, line);
    socket.prependListener('data', (chunk: Buffer) => {
      line.heard += chunk.length;
      if (line.listener) return line.listener(chunk);
      // Otherwise the next answer on this connection would begin with the rest of this one.
      socket.destroy();
      this.#onStray(chunk.length, 'idle');
    });
    // Newer versions of Node.js close an idle connection themselves when bytes arrive, without emitting them.
    socket.once('close', () => {
      const unheard = 'encrypted' in socket ? 0 : socket.bytesRead - line.heard;
      if (unheard > 0) this.#onStray(unheard, line.listener ? 'given up' : 'idle');
    });
    return line;
  }

  // Returns only checked addresses, so a DNS answer that changes after the check (DNS rebinding) has no effect.
  readonly #lookup: LookupFunction = (hostname, options, callback) => {
    this.#checkedAddresses(hostname).then(
      (addresses) =>
        options.all ? callback(null, [...addresses]) : callback(null, addresses[0]!.address, addresses[0]!.family),
      (error: unknown) => callback(error as Error, []),
    );
  };

  async #checkedAddresses(hostname: string): Promise<readonly LookupAddress[]> {
    const found = await this.#names.addressesOf(hostname);
    if (this.#allowPrivate) return found;
    const addresses = found.filter(({ address }) => isPublicAddress(address));
    if (addresses.length === 0)
      this.#refusePrivate(
        found.map(({ address }) => address),
        hostname,
      );
    return addresses;
  }

  #refusePrivate(addresses: readonly string[], hostname: string): void {
    if (this.#allowPrivate || addresses.some(isPublicAddress)) return;
    const shown = addresses.filter((address) => address !== hostname).join(', ');
    throw new StepFailure(
      'config',
      `expected a public address, and ${hostname} is ${shown === '' ? 'a private one' : shown}; allowPrivateAddresses of the source allows it`,
    );
  }
}

/** Whether a request on this socket is sent at once. */
export function isConnected(socket: Socket): boolean {
  return !socket.connecting && (socket as { secureConnecting?: boolean }).secureConnecting !== true;
}
