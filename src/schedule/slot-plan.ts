import { createHash } from 'node:crypto';
import { problemOf } from '../errors/index.ts';
import { parseCron } from './cron.ts';
import { nextSlot } from './cron-slot.ts';

/** A job whose next slot is due or unknown, from `pgfresh_engine.due_slots`. Times are in milliseconds. */
export interface DueJob {
  readonly job: number;
  readonly revision: number;
  /** The first slot not yet accounted for; null if there is none. */
  readonly slot: Date | null;
  /** Why all slots up to now are skipped. */
  readonly behind: 'disabled' | 'paused' | null;
  /** Cron, or null for a random delay between two bounds after each run. */
  readonly schedule: string | null;
  readonly timezone: string;
  readonly everyMin: number | null;
  readonly everyMax: number | null;
  readonly enabled: boolean;
  readonly pausedAt: Date | null;
  readonly pausedUntil: Date | null;
  /** Days in the job's zone, as 2026-12-25. */
  readonly blackoutDates: readonly string[];
  readonly catchUp: 'once' | 'skip' | 'all';
  readonly catchUpWindow: number | null;
  readonly catchUpMax: number;
  readonly jitter: number;
  readonly now: Date;
}

export type SkipReason = 'overlap' | 'missed' | 'paused' | 'blackout' | 'disabled';

export interface Skip {
  readonly reason: SkipReason;
  readonly from: Date;
  readonly to: Date;
  readonly count: number;
  readonly cause: 'scheduler';
}

/** What happens to a job's due slots, and when to look again. */
export interface SlotPlan {
  readonly job: number;
  readonly revision: number;
  readonly slot: Date | null;
  readonly next: Date | null;
  readonly due: Date;
  readonly skips: readonly Skip[];
  /** In order; the database decides about overlap. */
  readonly runs: readonly { readonly slot: Date; readonly cause: 'scheduler' | 'catchup' }[];
  readonly problem: string | null;
}

/** Cron's shortest period, so a slot later than this was missed. */
const onTimeMs = 60_000;
/** Slots per pass, more than any `catch_up_max`. The rest follow at once. */
const mostSlots = 20_000;
/** How far back catching up all goes by default. */
const allWindowMs = 86_400_000;
/** The problem may be local, such as missing time zone data: then another process gets its turn. */
const problemAgainMs = 10_000;

/** Decides about all of a job's slots up to now. A pure function of its argument and the time zone data. */
export function planSlots(job: DueJob): SlotPlan {
  try {
    return job.schedule === null ? planInterval(job) : planCron(job, job.schedule);
  } catch (error) {
    return { ...unchanged(job), next: job.slot, due: later(job.now, problemAgainMs), problem: problemOf(error) };
  }
}

/** Jitter of a slot: always the same for a job and slot, and never past the next slot. */
function jitterOf(job: number, slot: Date, next: Date | null, jitter: number): number {
  const room = Math.min(jitter, next === null ? jitter : next.getTime() - slot.getTime() - 1);
  return Math.floor(fraction(job, slot) * room);
}

function planCron(job: DueJob, schedule: string): SlotPlan {
  const cron = parseCron(schedule);
  const after = (slot: Date): Date | null => nextSlot(cron, job.timezone, slot);
  const dueOf = (slot: Date): Date =>
    later(slot, job.jitter > 0 ? jitterOf(job.job, slot, after(slot), job.jitter) : 0);
  const { now } = job;
  let next = job.slot ?? after(now);
  if (next === null) throw new Error(`"${schedule}" never comes`);
  const come: Date[] = [];
  while (next !== null && next <= now && come.length < mostSlots) {
    come.push(next);
    next = after(next);
  }
  const isLong = next !== null && next <= now;
  // Due, but for its jitter.
  if (come.length > 0 && !isLong && dueOf(come.at(-1)!) > now) next = come.pop()!;
  if (next === null) throw new Error(`"${schedule}" does not come again`);
  const { skips, runs, resumeAt } = account(job, come, isLong, dueOf);
  const found = resumeAt ?? next;
  return { ...unchanged(job), next: found, due: found <= now ? now : dueOf(found), skips, runs };
}

function planInterval(job: DueJob): SlotPlan {
  const { slot, now } = job;
  const everyMin = job.everyMin!;
  const wait = everyMin + Math.floor(fraction(job.job, now) * (job.everyMax! - everyMin));
  // Used only if it cannot run; otherwise the end of the run plans the next one.
  const next = later(now, wait);
  if (slot === null) return { ...unchanged(job), next, due: next };
  if (slot > now) return { ...unchanged(job), next: slot, due: slot };
  const { skips, runs } = account(job, [slot], false, () => slot);
  return { ...unchanged(job), next, due: next, skips, runs };
}

interface Accounted {
  readonly skips: Skip[];
  readonly runs: SlotPlan['runs'];
  /** The first slot left for the next pass. */
  readonly resumeAt?: Date | undefined;
}

function account(job: DueJob, come: readonly Date[], isLong: boolean, dueOf: (slot: Date) => Date): Accounted {
  const forbids = forbiddenBy(job);
  const reasonOf = (slot: Date): SkipReason | undefined => job.behind ?? forbids(slot);
  const reasons = new Map(come.map((slot) => [slot, reasonOf(slot)]));
  const free = come.filter((slot) => reasons.get(slot) === undefined);
  const chosen = new Set(choose(job, free, isLong, dueOf));
  // If there are too many, leave those that may still be caught up for the next pass.
  const left = isLong && job.catchUp === 'all' ? come.slice(-job.catchUpMax) : [];
  const settled = left.length > 0 ? come.slice(0, -left.length) : come;
  const skips = skipsOf(settled, (slot) => (chosen.has(slot) ? undefined : (reasons.get(slot) ?? 'missed')));
  const runs = settled
    .filter((slot) => chosen.has(slot))
    .map((slot) => ({ slot, cause: isOnTime(job, slot, dueOf) ? ('scheduler' as const) : ('catchup' as const) }));
  return { skips, runs, resumeAt: left[0] };
}

/** Which of the allowed slots run, by the job's catch-up policy. */
function choose(job: DueJob, free: readonly Date[], isLong: boolean, dueOf: (slot: Date) => Date): readonly Date[] {
  const newest = free.at(-1);
  if (newest === undefined || isLong) return [];
  const since = job.now.getTime() - (job.catchUpWindow ?? (job.catchUp === 'all' ? allWindowMs : Infinity));
  const mayRun = (slot: Date): boolean => isOnTime(job, slot, dueOf) || slot.getTime() >= since;
  switch (job.catchUp) {
    case 'skip':
      return isOnTime(job, newest, dueOf) ? [newest] : [];
    case 'once':
      return mayRun(newest) ? [newest] : [];
    case 'all':
    default:
      return free.filter(mayRun).slice(-job.catchUpMax);
  }
}

function isOnTime(job: DueJob, slot: Date, dueOf: (slot: Date) => Date): boolean {
  return job.now.getTime() - slot.getTime() <= onTimeMs || job.now.getTime() - dueOf(slot).getTime() <= onTimeMs;
}

/** Consecutive slots with one reason are one skip, unless one between them runs. */
function skipsOf(slots: readonly Date[], reasonOf: (slot: Date) => SkipReason | undefined): Skip[] {
  const skips: Skip[] = [];
  let open: { reason: SkipReason; from: Date; to: Date; count: number; cause: 'scheduler' } | undefined;
  for (const slot of slots) {
    const reason = reasonOf(slot);
    if (open !== undefined && open.reason === reason) {
      open.to = slot;
      open.count++;
      continue;
    }
    open = reason && { reason, from: slot, to: slot, count: 1, cause: 'scheduler' };
    if (open) skips.push(open);
  }
  return skips;
}

/** Why the job's own settings skip a slot. */
export function forbiddenBy(
  job: Pick<DueJob, 'enabled' | 'pausedAt' | 'pausedUntil' | 'blackoutDates' | 'timezone'>,
): (slot: Date) => SkipReason | undefined {
  const isBlackout = blackoutOf(job);
  return (slot) => {
    if (!job.enabled) return 'disabled';
    if (job.pausedAt && slot >= job.pausedAt && (!job.pausedUntil || slot < job.pausedUntil)) return 'paused';
    return isBlackout(slot) ? 'blackout' : undefined;
  };
}

/** Whether a slot is on an excluded day. */
export function blackoutOf({
  blackoutDates,
  timezone,
}: Pick<DueJob, 'blackoutDates' | 'timezone'>): (slot: Date) => boolean {
  if (blackoutDates.length === 0) return () => false;
  const dates = new Set(blackoutDates);
  // A locale that writes days as 2026-12-25.
  const format = new Intl.DateTimeFormat('sv-SE', { timeZone: timezone });
  return (slot) => dates.has(format.format(slot));
}

function unchanged({ job, revision, slot }: DueJob): Omit<SlotPlan, 'next' | 'due'> {
  return { job, revision, slot, skips: [], runs: [], problem: null };
}

/** A hash of a job and an instant, in [0, 1). */
function fraction(job: number, at: Date): number {
  return createHash('sha256').update(`${job} ${at.getTime()}`).digest().readUInt32BE() / 2 ** 32;
}

function later(time: Date, ms: number): Date {
  return new Date(time.getTime() + ms);
}
