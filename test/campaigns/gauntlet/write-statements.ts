import { wide } from './cast.ts';

/** A Parse message: its length, the name, the text. */
const parse = /P[\s\S]{4}(pgfresh\.write\.[0-9a-f]+)\0([^\0]+)/g;

/** Counts the statements that a process has prepared to write answers with other and other columns. */
export class WriteStatements {
  readonly #names = new Map<string, Set<string>>();
  #most = 0;

  /** A process begins anew. */
  begin(process: string): void {
    this.#names.set(process, new Set());
  }

  /** What a process has sent to the database. A message in two parts is missed, which counts one too few. */
  listen(process: string, chunk: Buffer): void {
    if (!chunk.includes('pgfresh.write.')) return;
    const names = this.#names.get(process)!;
    for (const [, name = '', text = ''] of chunk.toString('latin1').matchAll(parse))
      if (text.includes(wide.name)) names.add(name);
    this.#most = Math.max(this.#most, names.size);
  }

  /** Of one process, the most. */
  get most(): number {
    return this.#most;
  }
}
