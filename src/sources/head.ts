const none = Buffer.alloc(0);
const emptyLine = Buffer.from('\r\n\r\n');
// Of "HTTP/1.1 103".
const statusPlace = 9;

/** How many of an answer's first bytes are its head: what is beyond them must be as long as Content-Length says. */
export class Head {
  #pending: Buffer = none;
  #passed = 0;
  /** With its last empty line; undefined until that has come. */
  bytes: number | undefined;

  read(chunk: Buffer): void {
    if (this.bytes !== undefined) return;
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    for (;;) {
      const end = this.#pending.indexOf(emptyLine);
      if (end < 0) return;
      // 100 and 103 are heads of their own before the one that counts.
      const isInterim = this.#pending[statusPlace] === 0x31;
      this.#passed += end + 4;
      this.#pending = this.#pending.subarray(end + 4);
      if (isInterim) continue;
      this.bytes = this.#passed;
      this.#pending = none;
      return;
    }
  }
}
