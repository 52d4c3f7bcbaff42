import type { Said } from './live-client.ts';

/** A client of an event stream, based on fetch. */
export class EventClient {
  readonly response: Response;
  readonly ended: Promise<void>;
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #abort: AbortController;
  readonly #said: Said[] = [];
  #changed = Promise.withResolvers<void>();

  private constructor(url: string, headers: Record<string, string>, abort: AbortController, response: Response) {
    this.#url = url;
    this.#headers = headers;
    this.#abort = abort;
    this.response = response;
    this.ended = this.#read().catch(() => {});
  }

  static async open(url: string, headers: Record<string, string>): Promise<EventClient> {
    const abort = new AbortController();
    const response = await fetch(`${url}/live/events?protocol=1`, { headers, signal: abort.signal });
    return new EventClient(url, headers, abort, response);
  }

  async say(session: string, message: unknown): Promise<number> {
    const url = `${this.#url}/live/events/${session}`;
    const response = await fetch(url, { method: 'POST', headers: this.#headers, body: JSON.stringify(message) });
    await response.arrayBuffer();
    return response.status;
  }

  /** The next message, which must be of this type. Skips notes that an answer takes longer. */
  async next(type: string): Promise<Said> {
    const next = async (): Promise<Said> => {
      while (this.#said.length === 0) await this.#changed.promise;
      return this.#said.shift()!;
    };
    const isOfNoUse = ({ type: said }: Said): boolean => type === 'answer' && said === 'waiting';
    let said = await next();
    while (isOfNoUse(said)) said = await next();
    if (said.type !== type) throw new Error(`expected ${type}, got ${JSON.stringify(said)}`);
    return said;
  }

  close(): void {
    this.#abort.abort();
  }

  async #read(): Promise<void> {
    let text = '';
    for await (const chunk of this.response.body!.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
        const [, data] = /^data: (.*)$/.exec(text.slice(0, end)) ?? [];
        text = text.slice(end + 2);
        if (data !== undefined) this.#said.push(JSON.parse(data) as Said);
      }
      this.#changed.resolve();
      this.#changed = Promise.withResolvers();
    }
  }
}
