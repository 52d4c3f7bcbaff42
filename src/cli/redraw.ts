import { stripVTControlCharacters } from 'node:util';

interface Terminal {
  readonly columns?: number;
  readonly rows?: number;
  write(text: string): unknown;
}

const hideCursor = '\x1b[?25l';
const showCursor = '\x1b[?25h';
const clear = '\x1b[2J';
const home = '\x1b[H';
const clearLine = '\x1b[K';
const clearBelow = '\x1b[J';

/** Redraws a text in place. Cuts lines that are too long, because a wrapped line would shift the rest. */
export class Redraw {
  readonly #terminal: Terminal;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
    terminal.write(hideCursor + clear);
  }

  draw(text: string): void {
    const { columns = 80, rows = 24 } = this.#terminal;
    const lines = text.split('\n').slice(0, rows - 1);
    this.#terminal.write(home + lines.map((line) => `${cut(line, columns)}${clearLine}\n`).join('') + clearBelow);
  }

  end(): void {
    this.#terminal.write(showCursor);
  }
}

function cut(line: string, columns: number): string {
  const plain = stripVTControlCharacters(line);
  return plain.length <= columns ? line : `${plain.slice(0, columns - 1)}…`;
}
