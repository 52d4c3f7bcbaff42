/**
 * The tolerances of the invariants, in one place. Each is what the docs promise, plus the time needed to
 * keep it: a call in flight, a lease that must end, a round of the sweep. All in milliseconds.
 */
export const allowances = {
  /** A slot is taken up to 1.25 s before its call, and the limit is read when it is taken. */
  limitInForce: 2_000,
  /** A call lasts at most 5 s (the timeout of the sources here), so jobs above a lowered limit end within that. */
  concurrencyInForce: 7_000,
  /** A worker that is cut off or killed may have calls open until its lease has ended (12 s) and recovery has run. */
  lostWorker: 30_000,
  /** A call is booked when its job ends: 5 s for the call, then the commit and its repetitions. */
  booking: 20_000,
  /** A call that arrives after its source was paused was claimed before. */
  pause: 8_000,
  /** After SIGTERM, what was claimed before may still be sent within the 1.25 s of its slot. */
  stop: 2_500,
  /** A stop takes at most the drain time (10 s) and as long again. */
  exit: 25_000,
  /** A process that starts on a busy machine. */
  start: 60_000,
  /** Leaving: 10 s at the gateway, 1 s at the client, 15 s warm, and a minute. */
  leave: 90_000,
  /** A gateway that is killed or cut off: 30 s lease, the 120 s hold if it had all the demand, then as a leave. */
  lostGateway: 240_000,
  /** An SQL viewer who falls silent: five minutes, 75 s for the heartbeat that may not have been written, a sweep, a leave. */
  silence: 525_000,
  /**
   * A job that an operator or an application queued is wanted for so long: its turn may come late, and after failures it
   * is tried again up to 1, 2 and 4 minutes later.
   */
  byHand: 600_000,
  /** A key that is no longer listed: a sweep (60 s) and what runs then. */
  unlisted: 75_000,
  /** After the quiet period a viewed row is at most its TTL and this old. */
  late: 5_000,
  /** The same at a source that still works off jobs queued by hand: a minute until one of its calls is free. */
  lateBehindOthers: 67_000,
  /** A message about a row that was read before this has arrived at every viewer. */
  push: 5_000,
  /** A viewer's SQL call returns within this, whatever locks are held. */
  viewerCall: 3_000,
  /** A key of a schedule has its turn so long after its round was opened and nothing holds it: a tick and a fetch. */
  turn: 12_000,
  /** `pgfresh migrate` beside many ends: it starts, and waits for at most 10 s for a lock. */
  deployment: 25_000,
  /** With a planner that lives, a tick is never longer ago. */
  tick: 12_000,
  /** A new viewer of a type that nothing concerns gets a snapshot, and the row. */
  bystanderSnapshot: 4_000,
  bystanderRow: 12_000,
  /** What is written by several transactions, or seen by several statements, must persist for so long to count. */
  persists: 12_000,
  /** Attempts of a job that counted neither a retry nor a loss: the first, five put-backs, and one under way. */
  putBacks: 7,
  /**
   * Statements by which a process writes one data type. It learns one by one that each of eight columns may come, and
   * may be missing; after that nothing is new.
   */
  writeStatements: 20,
  /** Calls beyond the bound of starvation: those handed out before, a round that has begun, repetitions. */
  callsBeyond: 8,
} as const;
