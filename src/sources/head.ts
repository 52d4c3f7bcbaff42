const none = Buffer.alloc(0);
const emptyLine = Buffer.from('\r\n\r\n');
// Offset of the status in "HTTP/1.1 103".
const statusPlace = 9;

/** Measures the head of an answer, so that the rest can be compared with Content-Length. */
export class Head {
  #pending: Buffer = none;
  #passed = 0;
  /** Size including the final empty line; undefined until that has arrived. */
  bytes: number | undefined;

  read(chunk: Buffer): void {
    if (this.bytes !== undefined) return;
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    for (;;) {
      const end = this.#pending.indexOf(emptyLine);
      if (end < 0) return;
      // 1xx responses have heads of their own before the final one.
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
