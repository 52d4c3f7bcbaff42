import { performance } from 'node:perf_hooks';
import pg from 'pg';
import { codedOr, send } from './query.ts';
import { sessionSettings } from './session-settings.ts';
import { commit, connected, isLost, transactionLimits } from './transaction.ts';

/** A statement that runs code which is not ours. */
export interface Guest<Row extends object> {
  readonly statement: string;
  readonly values: readonly unknown[];
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  /** How long it may go on after it was told to end, before its session is ended. */
  readonly graceMs?: number | undefined;
  /** Whether what it did is to stay. */
  isKept(rows: readonly Row[]): boolean;
}

/** Why code of a guest was cut off: its time was over, no one wants its end any more, or someone did it in the database. */
type CutReason = 'timeout' | 'cancelled' | 'interrupted';

/** Code of a guest that was cut off. */
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
  /** On a connection of its own: those of the pool may all be busy with guests. */
  end(pid: number, how: Ending): Promise<void>;
  readonly statementTimeoutMs: number;
  /** Whether the server can limit a whole transaction. */
  hasTransactionTimeout(): boolean;
}

// What a session keeps beyond a transaction. Not "discard all", which forgets our own plans too; it knows no other names than
// these, because the search path may be the guest's.
const cleaning =
  'close all; reset session authorization; reset all; deallocate all; unlisten *; select pg_catalog.pg_advisory_unlock_all(); discard temp; discard sequences';

/**
 * Runs one statement in a transaction of its own, no longer than its limit, whatever its code does about being cancelled. Nothing
 * that it did to the session is left in it. What can be sent together is: a run is short, and each way to the server counts.
 */
export async function runGuest<Row extends object>(guest: Guest<Row>, shell: Shell): Promise<Row[]> {
  const client = await connected(shell);
  const clean = `${cleaning}; ${sessionSettings(shell.statementTimeoutMs)}`;
  const lastMs = graceOf(guest) + silenceMs;
  const endBy = performance.now() + guest.timeoutMs + lastMs;
  // What follows his statement has the rest of his time: a connection can die without a word at any moment.
  const rest = () => ({ withinMs: Math.max(lastMs, endBy - performance.now()) });
  let broken: Error | undefined;
  const onError = (error: Error): void => void (broken ??= error);
  client.on('error', onError);
  try {
    const opened = open(client, guest, shell);
    // Enough to hear that his session was ended: if nothing was by then, the connection is dead.
    const withinMs = guest.timeoutMs + lastMs;
    const run = (): Promise<pg.QueryResult<Row>> => send<Row>(client, guest.statement, guest.values, { withinMs });
    const { rows } = await hosted(run, guest, async (how) => {
      // On a dead connection there is no answer to this either, and no one to end.
      const pid = await opened.catch(() => undefined);
      if (pid !== undefined) await shell.end(pid, how);
    });
    if (guest.isKept(rows)) {
      // What was his limit, and what he has set, is not for the commit.
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

/** Ends code that survives its cancellation soon after we are gone. A server on Windows cannot look for that, and refuses it. */
const endsWithUs =
  "select pg_catalog.set_config('client_connection_check_interval', '1000', true) where pg_catalog.version() !~ 'Visual C|msvc|mingw'";

/** Begins a transaction; settles to the server process that has it. */
function open(
  client: pg.PoolClient,
  guest: Pick<Guest<never>, 'timeoutMs' | 'graceMs'>,
  shell: Shell,
): Promise<number> {
  const limit = Math.max(1, Math.round(guest.timeoutMs));
  // The last resort, for the case that we are not here any more to end a session that survives its own limit.
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
  // If it fails, so does what was sent behind it.
  opened.catch(() => {});
  return opened;
}

/** How long a server may say nothing after it was told to end a session. */
const silenceMs = 700;

function graceOf({ graceMs = 1_000 }: Pick<Guest<never>, 'graceMs'>): number {
  return graceMs;
}

/** The server's own limit comes first; this one is for code that survives it, and for earlier deadlines. */
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
    // One that comes late must not meet the next statement of the session, if it has one.
    if (!isGone) await Promise.all(ends);
  }
}

/** The server's clock and ours are not the same. */
function cutBySelf(ms: number, timeoutMs: number): CutReason {
  return ms > 0.9 * timeoutMs - 20 ? 'timeout' : 'interrupted';
}

/** Whether he was cut off by the end of his connection. */
function isDead(error: unknown): error is GuestCut {
  return error instanceof GuestCut && isLost(error.cause);
}

function isCancel(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === '57014';
}
