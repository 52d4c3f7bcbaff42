import type { Proxy } from './proxy.ts';

interface Stream {
  rest: Buffer;
  isStarted: boolean;
  /** The text of the statement that has no name. */
  unnamed: string;
}

const sslRequest = 80_877_103;

/** Every statement that clients send through proxies, in order: by name, or by text if unnamed. */
export class StatementLog {
  readonly #streams = new Map<string, Stream>();
  #sent: { readonly by: string; readonly statement: string }[] = [];

  /** Reads the traffic of a proxy. */
  follow(proxy: Proxy, by: string): void {
    proxy.judge = (chunk, direction, connection) => {
      if (direction === 'to server') this.#read(by, `${by} ${connection}`, chunk);
      return 'pass';
    };
  }

  /** Statements sent since the last call. */
  take(): readonly { readonly by: string; readonly statement: string }[] {
    const sent = this.#sent;
    this.#sent = [];
    return sent;
  }

  #read(by: string, name: string, chunk: Buffer): void {
    const stream = this.#streams.get(name) ?? { rest: Buffer.alloc(0), isStarted: false, unnamed: '' };
    this.#streams.set(name, stream);
    stream.rest = Buffer.concat([stream.rest, chunk]);
    for (;;) {
      // The first message has no type byte before its length.
      const head = stream.isStarted ? 1 : 0;
      if (stream.rest.length < head + 4) return;
      const length = head + stream.rest.readInt32BE(head);
      if (stream.rest.length < length) return;
      const message = stream.rest.subarray(0, length);
      stream.rest = stream.rest.subarray(length);
      if (stream.isStarted) this.#note(by, stream, message);
      else stream.isStarted = message.readInt32BE(4) !== sslRequest;
    }
  }

  #note(by: string, stream: Stream, message: Buffer): void {
    const [first = '', second = ''] = message.toString('utf8', 5).split('\0');
    const letter = String.fromCharCode(message[0]!);
    if (letter === 'P' && first === '') stream.unnamed = second;
    if (letter === 'Q') this.#sent.push({ by, statement: first });
    if (letter === 'B') this.#sent.push({ by, statement: second || stream.unnamed });
  }
}
