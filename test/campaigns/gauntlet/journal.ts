/** What an operation or a violation is about. Nothing named: everything. */
export interface Subject {
  readonly source?: string | undefined;
  readonly type?: string | undefined;
  readonly key?: string | undefined;
  readonly job?: string | undefined;
}

const parts = ['source', 'type', 'key', 'job'] as const;

interface Entry {
  readonly at: number;
  readonly operation: string;
  readonly words: string;
  readonly subjects: readonly Subject[];
}

export interface Violation {
  readonly at: number;
  readonly invariant: string;
  readonly words: string;
  readonly subject: Subject;
  readonly operations: readonly string[];
}

const shownOperations = 14;
/** Of one invariant, so many violations are told; the others only count. */
const shownAlike = 4;

/** What was done, and what was found to be wrong, with what had touched it. */
export class Journal {
  readonly #began = Date.now();
  readonly #entries: Entry[] = [];
  readonly #violations = new Map<string, Violation>();
  readonly #times = new Map<string, number>();
  readonly #print: (text: string) => void;
  #isClosed = false;

  constructor(print: (text: string) => void) {
    this.#print = print;
  }

  get violations(): readonly Violation[] {
    return [...this.#violations.values()];
  }

  note(operation: string, words: string, ...subjects: Subject[]): void {
    this.#entries.push({ at: Date.now(), operation, words, subjects });
    this.#times.set(operation, (this.#times.get(operation) ?? 0) + 1);
    if (process.env['GAUNTLET_TRACE']) this.#print(`  ${this.#clock(Date.now())} ${operation}: ${words}`);
  }

  /** How often each operation was done. */
  counts(): Record<string, number> {
    return Object.fromEntries([...this.#times].toSorted(([one], [other]) => one.localeCompare(other)));
  }

  /** The first violation of an invariant about a subject is told; more of the same say nothing new. */
  violated(invariant: string, subject: Subject, words: string): void {
    if (this.#isClosed) return;
    const name = [invariant, ...parts.map((part) => subject[part] ?? '')].join(' ');
    if (this.#violations.has(name)) return;
    const operations = this.#entries
      .filter(({ subjects }) => subjects.length === 0 || subjects.some((touched) => concerns(touched, subject)))
      .slice(-shownOperations)
      .map(({ at, operation, words: done }) => `${this.#clock(at)} ${operation}: ${done}`);
    this.#violations.set(name, { at: Date.now(), invariant, words, subject, operations });
    const alike = this.violations.filter((other) => other.invariant === invariant).length;
    if (alike > shownAlike) return;
    const list = operations.map((line) => `\n      ${line}`).join('');
    this.#print(`VIOLATION ${this.#clock(Date.now())} ${invariant}: ${words}${list}`);
  }

  /** What comes after the end is about things that were taken away. */
  close(): void {
    this.#isClosed = true;
  }

  #clock(at: number): string {
    return `${((at - this.#began) / 1000).toFixed(1).padStart(6)} s`;
  }
}

/** Whether an operation on the one touched the other: where both name a part, it is the same. */
function concerns(touched: Subject, subject: Subject): boolean {
  if (parts.every((part) => subject[part] === undefined)) return true;
  const shared = parts.filter((part) => touched[part] !== undefined && subject[part] !== undefined);
  return shared.length > 0 && shared.every((part) => touched[part] === subject[part]);
}
