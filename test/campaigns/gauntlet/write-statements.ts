import type { Socket } from 'node:net';
import { wide } from './cast.ts';

/** A Parse message: its length, the name, the text. */
const parse = /P[\s\S]{4}(pgfresh\.write\.[0-9a-f]+)\0([^\0]+)/g;

/** Counts the statements that connections have prepared to write answers with other and other columns. */
export class WriteStatements {
  readonly #names = new WeakMap<Socket, Set<string>>();
  #most = 0;

  /** What a client has sent. A message in two parts is missed, which counts one too few. */
  listen(chunk: Buffer, client: Socket): void {
    if (!chunk.includes('pgfresh.write.')) return;
    for (const [, name = '', text = ''] of chunk.toString('latin1').matchAll(parse)) {
      if (!text.includes(wide.name)) continue;
      const names = (this.#names.get(client) ?? new Set()).add(name);
      this.#names.set(client, names);
      this.#most = Math.max(this.#most, names.size);
    }
  }

  /** Of one connection, the most. */
  get most(): number {
    return this.#most;
  }
}
