import { performance } from 'node:perf_hooks';
import pg from 'pg';
import { codedOr, send } from './query.ts';
import { sessionSettings } from './session-settings.ts';
import { commit, connected, isLost, transactionLimits } from './transaction.ts';

/** A statement that runs users' code. */
export interface Guest<Row extends object> {
  readonly statement: string;
  readonly values: readonly unknown[];
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  /** Grace period after a cancellation, before its session is terminated. */
  readonly graceMs?: number | undefined;
  /** Whether to commit what it did. */
  isKept(rows: readonly Row[]): boolean;
}

/** Why users' code was cut off: it timed out, its caller no longer needs it, or it was cancelled in the database. */
type CutReason = 'timeout' | 'cancelled' | 'interrupted';

/** Users' code that was cut off. */
export class GuestCut extends Error {
  override readonly name = 'GuestCut';
  readonly reason: CutReason;

  constructor(reason: CutReason, cause: unknown) {
    super(reason === 'timeout' ? 'it took longer than its time limit' : `it was ${reason}`, { cause });
    this.reason = reason;
  }
}

type Ending = 'pg_cancel_backend' | 'pg_terminate_backend';

interface Shell {
  connect(): Promise<pg.PoolClient>;
  /** On a separate connection: those of the pool may all run users' code. */
  end(pid: number, how: Ending): Promise<void>;
  readonly statementTimeoutMs: number;
  /** Whether the server can limit a whole transaction. */
  hasTransactionTimeout(): boolean;
}

// Session state that outlives a transaction. Not "discard all", which drops our own plans too. Names have their schema,
// because the user's code may have set the search path.
const cleaning =
  'close all; reset session authorization; reset all; deallocate all; unlisten *; select pg_catalog.pg_advisory_unlock_all(); discard temp; discard sequences';

/**
 * Runs one statement in its own transaction and within its limit, even if its code ignores cancellation. Resets the
 * session afterwards. Statements are sent together where possible: runs are short, and each round trip counts.
 */
export async function runGuest<Row extends object>(guest: Guest<Row>, shell: Shell): Promise<Row[]> {
  const client = await connected(shell);
  const clean = `${cleaning}; ${sessionSettings(shell.statementTimeoutMs)}`;
  const lastMs = graceOf(guest) + silenceMs;
  const endBy = performance.now() + guest.timeoutMs + lastMs;
  // What follows the statement has the rest of its time: a connection can die silently at any moment.
  const rest = () => ({ withinMs: Math.max(lastMs, endBy - performance.now()) });
  let broken: Error | undefined;
  const onError = (error: Error): void => void (broken ??= error);
  client.on('error', onError);
  try {
    const opened = open(client, guest, shell);
    // Time to hear that the session was terminated; if nothing came by then, the connection is dead.
    const withinMs = guest.timeoutMs + lastMs;
    const run = (): Promise<pg.QueryResult<Row>> => send<Row>(client, guest.statement, guest.values, { withinMs });
    const { rows } = await hosted(run, guest, async (how) => {
      // On a dead connection there is no answer to this either, and no session to end.
      const pid = await opened.catch(() => undefined);
      if (pid !== undefined) await shell.end(pid, how);
    });
    if (guest.isKept(rows)) {
      // The limit and settings of the user's code must not apply to the commit.
      const last = `set local search_path = pg_catalog, pg_temp; set local statement_timeout = ${shell.statementTimeoutMs}`;
      const committed = commit(client, rest(), last);
      await Promise.all([committed, send(client, clean, [], rest()).catch(onError)]);
    } else await send(client, `rollback; ${clean}`, [], rest()).catch(onError);
    return rows;
  } catch (error) {
    if (isLost(error) || isDead(error)) broken ??= error;
    else await send(client, `rollback; ${clean}`, [], rest()).catch(onError);
    throw error;
  } finally {
    client.off('error', onError);
    client.release(broken ?? false);
  }
}

/** Ends code that survives its cancellation soon after we are gone. A server on Windows refuses this setting. */
const endsWithUs =
  "select pg_catalog.set_config('client_connection_check_interval', '1000', true) where pg_catalog.version() !~ 'Visual C|msvc|mingw'";

/** Begins a transaction; resolves with its server process. */
function open(
  client: pg.PoolClient,
  guest: Pick<Guest<never>, 'timeoutMs' | 'graceMs'>,
  shell: Shell,
): Promise<number> {
  const limit = Math.max(1, Math.round(guest.timeoutMs));
  // Last resort, if we are gone and the session survives its own limit.
  const last = limit + 2 * graceOf(guest) + shell.statementTimeoutMs;
  const limits = transactionLimits(shell.hasTransactionTimeout() ? last : undefined);
  const text = [
    'begin',
    `set local statement_timeout = ${limit}`,
    ...limits,
    endsWithUs,
    'select pg_catalog.pg_backend_pid() as pid',
  ];
  const opened = send(client, text.join('; ')).then((results) => {
    const session = (results as unknown as readonly pg.QueryResult<{ pid: number }>[]).at(-1);
    return session!.rows[0]!.pid;
  });
  // If it fails, so do the statements sent after it.
  opened.catch(() => {});
  return opened;
}

/** How long a server may stay silent after it was told to end a session. */
const silenceMs = 700;

function graceOf({ graceMs = 1_000 }: Pick<Guest<never>, 'graceMs'>): number {
  return graceMs;
}

/** The server's own limit comes first; this one covers code that survives it, and earlier deadlines. */
async function hosted<T>(
  run: () => Promise<T>,
  guest: Pick<Guest<never>, 'timeoutMs' | 'signal' | 'graceMs'>,
  end: (how: Ending) => Promise<void>,
): Promise<T> {
  const { timeoutMs, signal } = guest;
  const graceMs = graceOf(guest);
  let reason: CutReason | undefined;
  const since = performance.now();
  const ends: Promise<void>[] = [];
  const timers: NodeJS.Timeout[] = [];
  let isGone = false;
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
    const coded = codedOr(error, 'PGF_DATABASE_LOST');
    isGone = isLost(coded);
    const cut = reason !== undefined && (isCancel(error) || isGone);
    if (cut || isCancel(error)) throw new GuestCut(reason ?? cutBySelf(performance.now() - since, timeoutMs), coded);
    throw coded;
  } finally {
    signal?.removeEventListener('abort', onAbort);
    timers.forEach(clearTimeout);
    // A late cancellation must not hit the session's next statement.
    if (!isGone) await Promise.all(ends);
  }
}

/** Allows for the difference between the server's clock and ours. */
function cutBySelf(ms: number, timeoutMs: number): CutReason {
  return ms > 0.9 * timeoutMs - 20 ? 'timeout' : 'interrupted';
}

/** Whether its connection was terminated. */
function isDead(error: unknown): error is GuestCut {
  return error instanceof GuestCut && isLost(error.cause);
}

function isCancel(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === '57014';
}
