import { FairQueue, probeLimits, TimeoutBreaker, type RunResult } from '../../changes/index.ts';
import {
  failureOf,
  isTimeout,
  type LimitedQueryable,
  type Queryable,
  type StatementLimits,
} from '../../database/index.ts';
import { asPgfreshError, problemOf } from '../../errors/index.ts';
import { pause } from '../../lifecycle/index.ts';

export interface TypeStatementsOptions {
  readonly db: LimitedQueryable;
  readonly limits: StatementLimits;
  /** Called for timeouts that should be reported. */
  readonly onTimeout: (dataType: string, topic: StatementTopic, problem: string) => void;
}

/** What a statement is about. Topics use different tables and functions, so one may hang while the others work. */
export type StatementTopic = 'keys' | 'want' | 'plan' | 'refresh';

/** Concurrent statements, of all data types and of one. */
export const maxStatements = 6;
const maxStatementsPerType = 2;
export const maxProbes = 2;

interface WaitingStatement {
  readonly type: string;
  readonly start: () => void;
}

/**
 * Runs statements that use the tables and functions of one data type each. A type gets only some of the connections,
 * however long its statements take, and after two timeouts only those reserved for probes.
 */
export class TypeStatements {
  readonly #options: TypeStatementsOptions;
  readonly #statements = new FairQueue<WaitingStatement>(maxStatements, maxStatementsPerType);
  readonly #probes = new FairQueue<WaitingStatement>(maxProbes, 1);
  readonly #breakers: Readonly<Record<StatementTopic, TimeoutBreaker<string>>> = {
    keys: new TimeoutBreaker(),
    want: new TimeoutBreaker(),
    plan: new TimeoutBreaker(),
    refresh: new TimeoutBreaker(),
  };
  readonly #stopping = new AbortController();

  constructor(options: TypeStatementsOptions) {
    this.#options = options;
  }

  get isStopped(): boolean {
    return this.#stopping.signal.aborted;
  }

  /** Whether the data type gets only probes. */
  isUnresponsive(dataType: string, topic: StatementTopic): boolean {
    return this.#breakers[topic].isUnresponsive(dataType);
  }

  /** Milliseconds until the data type may be queried; 0 if it may be now. */
  waitMs(dataType: string, topic: StatementTopic): number {
    return this.#breakers[topic].waitMs(dataType);
  }

  /** Resolves after the given time, or when this is stopped. */
  async wait(ms: number): Promise<void> {
    await pause(ms, this.#stopping.signal);
  }

  /** Runs a query within the limits, when it is its turn. */
  async run<Answer>(
    dataType: string,
    topic: StatementTopic,
    query: (db: Queryable) => Promise<Answer>,
  ): Promise<Answer> {
    const { db, limits, onTimeout } = this.#options;
    const breaker = this.#breakers[topic];
    const queue = breaker.isUnresponsive(dataType) ? this.#probes : this.#statements;
    const statement = await this.#waitForTurn(queue, dataType);
    const isShortProbe = breaker.isShortProbe(dataType);
    let result: RunResult = 'done';
    try {
      const answer = await query({
        query: (text, values) => db.query(text, values, isShortProbe ? probeLimits : limits),
      });
      breaker.answered(dataType);
      return answer;
    } catch (error) {
      if (isTimeout(error)) {
        result = 'slow';
        if (breaker.timedOut(dataType)) onTimeout(dataType, topic, problemOf(error));
      } else if (isAnswer(error)) breaker.answered(dataType);
      throw error;
    } finally {
      queue.end(statement, result);
      this.#startNext(queue);
    }
  }

  /** From here on, callers do not wait for unresponsive types. */
  stop(): void {
    this.#stopping.abort();
  }

  async #waitForTurn(queue: FairQueue<WaitingStatement>, type: string): Promise<WaitingStatement> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const statement = { type, start: resolve };
    queue.add(statement, 'first');
    this.#startNext(queue);
    await promise;
    return statement;
  }

  #startNext(queue: FairQueue<WaitingStatement>): void {
    for (let statement = queue.next(); statement; statement = queue.next()) statement.start();
  }
}

/** An error raised by the data type is an answer too; one of the connection or the server says nothing about the type. */
function isAnswer(error: unknown): boolean {
  if (asPgfreshError(error).code === 'PGF_COMMIT_UNKNOWN') return false;
  return !['connection', 'resources', 'login', 'readonly'].includes(failureOf(error));
}
