import pg from 'pg';
import { codedOr, send, type Queryable, type Statement } from './query.ts';
import { commit, connected, isLost } from './transaction.ts';

export interface GuestLimits {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  /** How long a statement may go on after it was told to end, before its session is ended. */
  readonly graceMs?: number | undefined;
}

/** A transaction in which code runs that is not ours. */
export interface GuestTransaction extends Queryable {
  /** Runs such code, no longer than its limit. What it does about being cancelled does not matter. */
  host<Row extends object>(statement: string, values: readonly unknown[], limits: GuestLimits): Promise<Row[]>;
}

/** Code of a guest that was cut off: its time was over, or nobody wants its end any more. */
export class GuestCut extends Error {
  override readonly name = 'GuestCut';
  readonly reason: 'timeout' | 'cancelled';

  constructor(reason: 'timeout' | 'cancelled', cause: unknown) {
    super(reason === 'timeout' ? 'it took longer than its time limit' : 'it was cancelled', { cause });
    this.reason = reason;
  }
}

interface Shell {
  connect(): Promise<pg.PoolClient>;
  /** On a connection of its own: those of the pool may all be busy with guests. */
  end(pid: number, how: 'pg_cancel_backend' | 'pg_terminate_backend'): Promise<void>;
  readonly statementTimeoutMs: number;
}

// What a session keeps beyond a transaction. Not "discard all", which forgets our own plans too; it knows no other names than
// these, because the search path may be the guest's.
const cleaning =
  'close all; reset session authorization; reset all; deallocate all; unlisten *; select pg_catalog.pg_advisory_unlock_all(); discard temp; discard sequences';

/** Runs `work` once in a transaction, after which nothing that guests did to the session is left in it. */
export async function runGuestTransaction<T>(work: (tx: GuestTransaction) => Promise<T>, shell: Shell): Promise<T> {
  const client = await connected(shell);
  let broken: Error | undefined;
  const onError = (error: Error): void => void (broken ??= error);
  client.on('error', onError);
  const query = async <Row extends object>(statement: Statement, values?: readonly unknown[]): Promise<Row[]> => {
    try {
      // Never by a name, which a guest may have taken for a statement of his own.
      const text = typeof statement === 'string' ? statement : statement.text;
      return (await send<Row>(client, text, values)).rows;
    } catch (error) {
      throw codedOr(error, 'PGF_DATABASE_LOST');
    }
  };
  try {
    // In one way, because a run is short and each way counts.
    const [, session] = (await send(client, 'begin; select pg_catalog.pg_backend_pid() as pid').catch(
      (error: unknown) => {
        throw codedOr(error, 'PGF_DATABASE_LOST');
      },
    )) as unknown as readonly { readonly rows: readonly { readonly pid: number }[] }[];
    const { pid } = session!.rows[0]!;
    const host: GuestTransaction['host'] = async (statement, values, limits) => {
      await query(`set local statement_timeout = ${limitOf(limits)}`);
      const rows = await hosted(
        () => send(client, statement, values, { unlimited: true }),
        limits,
        (how) => shell.end(pid, how),
      );
      await query(
        `set local search_path = pg_catalog, pg_temp; set local statement_timeout = ${shell.statementTimeoutMs}`,
      );
      return rows.rows as never;
    };
    const result = await work({ query, host });
    await commit(client, {});
    return result;
  } catch (error) {
    if (isLost(error)) broken ??= error;
    else await client.query('rollback').catch(onError);
    throw error;
  } finally {
    if (!broken) await client.query(`${cleaning}; set statement_timeout = ${shell.statementTimeoutMs}`).catch(onError);
    client.off('error', onError);
    client.release(broken ?? false);
  }
}

function limitOf({ timeoutMs }: GuestLimits): number {
  return Math.max(1, Math.round(timeoutMs));
}

/** The server's own limit is the first; this is for code that survives it, and for whoever asks earlier. */
async function hosted<T>(
  run: () => Promise<T>,
  { timeoutMs, signal, graceMs = 2_000 }: GuestLimits,
  end: (how: 'pg_cancel_backend' | 'pg_terminate_backend') => Promise<void>,
): Promise<T> {
  let reason: GuestCut['reason'] | undefined;
  const ends: Promise<void>[] = [];
  const timers: NodeJS.Timeout[] = [];
  const terminate = (after: number): void =>
    void timers.push(setTimeout(() => void ends.push(end('pg_terminate_backend')), after));
  const onAbort = (): void => {
    reason ??= 'cancelled';
    ends.push(end('pg_cancel_backend'));
    terminate(graceMs);
  };
  if (signal?.aborted) throw new GuestCut('cancelled', signal.reason);
  signal?.addEventListener('abort', onAbort, { once: true });
  timers.push(setTimeout(() => (reason ??= 'timeout'), timeoutMs));
  terminate(timeoutMs + graceMs);
  try {
    return await run();
  } catch (error) {
    const cut = reason !== undefined && (isCancel(error) || isLost(codedOr(error, 'PGF_DATABASE_LOST')));
    if (cut || isCancel(error)) throw new GuestCut(reason ?? 'timeout', error);
    throw codedOr(error, 'PGF_DATABASE_LOST');
  } finally {
    signal?.removeEventListener('abort', onAbort);
    timers.forEach(clearTimeout);
    // One that comes late must not meet the next statement of the session.
    await Promise.all(ends);
  }
}

function isCancel(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === '57014';
}
