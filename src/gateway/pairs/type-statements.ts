import { Holds, probeLimits, Turns, type TurnEnd } from '../../changes/index.ts';
import {
  failureOf,
  isTimeout,
  type LimitedQueryable,
  type Queryable,
  type StatementLimits,
} from '../../database/index.ts';
import { asPgfreshError, problemOf } from '../../errors/index.ts';
import { pause } from '../../lifecycle/index.ts';

export interface LanesOptions {
  readonly db: LimitedQueryable;
  readonly limits: StatementLimits;
  /** Told of timeouts that are to be noted. */
  readonly onTimeout: (dataType: string, topic: Topic, problem: string) => void;
}

/** What is asked about a data type. Each asks other tables and functions, so one may hang while another does not. */
export type Topic = 'keys' | 'want' | 'plan' | 'refresh';

/** Statements of all types at once, and of one type. */
export const statementsAtOnce = 6;
const perType = 2;
export const probesAtOnce = 2;

interface Turn {
  readonly type: string;
  readonly begin: () => void;
}

/**
 * Statements about one data type each. A type has its own lane: it takes only some of the connections, however long its
 * tables and functions keep a statement, and after two timeouts only those of the probes.
 */
export class Lanes {
  readonly #options: LanesOptions;
  readonly #turns = new Turns<Turn>(statementsAtOnce, perType);
  readonly #probes = new Turns<Turn>(probesAtOnce, 1);
  readonly #holds: Readonly<Record<Topic, Holds<string>>> = {
    keys: new Holds(),
    want: new Holds(),
    plan: new Holds(),
    refresh: new Holds(),
  };
  readonly #stopping = new AbortController();

  constructor(options: LanesOptions) {
    this.#options = options;
  }

  get isStopped(): boolean {
    return this.#stopping.signal.aborted;
  }

  /** Whether only probes ask it. */
  isHeld(dataType: string, topic: Topic): boolean {
    return this.#holds[topic].isHeld(dataType);
  }

  /** How long it is until the type may be asked; 0 if it may be now. */
  pauseMs(dataType: string, topic: Topic): number {
    return this.#holds[topic].pauseMs(dataType);
  }

  /** Settles when the time has passed, or when nothing is asked any more. */
  async wait(ms: number): Promise<void> {
    await pause(ms, this.#stopping.signal);
  }

  /** Asks about a type, within its limits. */
  async run<Answer>(dataType: string, topic: Topic, ask: (db: Queryable) => Promise<Answer>): Promise<Answer> {
    const { db, limits, onTimeout } = this.#options;
    const holds = this.#holds[topic];
    const turns = holds.isHeld(dataType) ? this.#probes : this.#turns;
    const turn = await this.#turn(turns, dataType);
    const isShort = holds.isShort(dataType);
    let end: TurnEnd = 'done';
    try {
      const answer = await ask({
        query: (statement, values) => db.query(statement, values, isShort ? probeLimits : limits),
      });
      holds.answered(dataType);
      return answer;
    } catch (error) {
      if (isTimeout(error)) {
        end = 'slow';
        if (holds.timedOut(dataType)) onTimeout(dataType, topic, problemOf(error));
      } else if (isAnswer(error)) holds.answered(dataType);
      throw error;
    } finally {
      turns.end(turn, end);
      this.#begin(turns);
    }
  }

  /** From here on nobody waits for a type that is held. */
  stop(): void {
    this.#stopping.abort();
  }

  async #turn(turns: Turns<Turn>, type: string): Promise<Turn> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const turn = { type, begin: resolve };
    turns.add(turn, 'first');
    this.#begin(turns);
    await promise;
    return turn;
  }

  #begin(turns: Turns<Turn>): void {
    for (let turn = turns.next(); turn; turn = turns.next()) turn.begin();
  }
}

/** An error of the data type is an answer too; one of the connection or the server says nothing about it. */
function isAnswer(error: unknown): boolean {
  if (asPgfreshError(error).code === 'PGF_COMMIT_UNKNOWN') return false;
  return !['connection', 'resources', 'login', 'readonly'].includes(failureOf(error));
}
