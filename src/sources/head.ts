/** How many of an answer's first bytes are its head: what is beyond them must be as long as Content-Length says. */
export class Head {
  #pending: Buffer = Buffer.alloc(0);
  #passed = 0;
  /** With its last empty line; undefined until that has come. */
  bytes: number | undefined;

  read(chunk: Buffer): void {
    if (this.bytes !== undefined) return;
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    for (;;) {
      const end = this.#pending.indexOf('\r\n\r\n');
      if (end < 0) return;
      // 100 and 103 are heads of their own before the one that counts.
      const isInterim = /^HTTP\/1\.\d 1\d\d/.test(this.#pending.toString('latin1', 0, 12));
      this.#passed += end + 4;
      this.#pending = this.#pending.subarray(end + 4);
      if (isInterim) continue;
      this.bytes = this.#passed;
      this.#pending = Buffer.alloc(0);
      return;
    }
  }
}
