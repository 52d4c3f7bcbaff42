import { durationText, timeText } from '../config/index.ts';
import type {
  Backfill,
  BackfillProgress,
  JobDetails,
  JobRun,
  JobStatus,
  NextSlot,
  Retry,
  Triggered,
} from '../schedule/index.ts';
import { table } from './output.ts';

const none = `No jobs yet.
Next: Add one to jobs of pgfresh.config.ts and run "pgfresh migrate", or insert a row into pgfresh.scheduled_jobs; docs/guides/scheduling.md shows both.`;

export function jobList(jobs: readonly JobStatus[]): string {
  if (jobs.length === 0) return none;
  const head = ['job', 'state', 'when', 'next run', 'last run', 'success', 'p95', 'message'];
  const rows = jobs.map((job) => [
    job.name,
    job.state,
    when(job),
    time(job.next_run_at),
    job.last_run_at === null ? 'never' : `${time(job.last_run_at)} ${lastEnd(job)}`,
    job.success_rate_percent === null ? '–' : `${job.success_rate_percent} %`,
    took(job.p95_ms),
    job.problem ?? job.last_message ?? '',
  ]);
  return table([head, ...rows]);
}

export function jobPage(job: JobDetails, next: readonly NextSlot[], runs: readonly JobRun[]): string {
  const rows = Object.entries<unknown>({ ...job }).flatMap(([column, value]) =>
    value === null || (Array.isArray(value) && value.length === 0) ? [] : [[column, cell(column, value)]],
  );
  return [
    table(rows),
    ...(job.next_step === null ? [] : [`Next: ${job.next_step}`]),
    ...(next.length > 0 ? ['', slotList(next)] : []),
    ...(runs.length > 0 ? ['', runList(runs)] : []),
  ].join('\n');
}

export function slotList(slots: readonly NextSlot[]): string {
  if (slots.length === 0) return 'Nothing is planned: its next run depends on the end of one, or it is disabled.';
  return table([['next slot', 'skipped'], ...slots.map(({ slot, skipped }) => [time(slot), skipped ?? ''])]);
}

export function runList(runs: readonly JobRun[]): string {
  if (runs.length === 0) return 'No runs yet.';
  const head = ['run', 'slot', 'state', 'by', 'attempt', 'started', 'took', 'late', 'message'];
  return table([
    head,
    ...runs.map((run) => [
      String(run.id),
      run.occurrences === 1 ? time(run.scheduled_for) : `${time(run.scheduled_for)} – ${time(run.scheduled_to)}`,
      run.state === 'skipped' ? `${run.occurrences} skipped: ${run.reason}` : run.state,
      run.triggered_by,
      String(run.attempt),
      time(run.started_at),
      took(run.duration_ms),
      took(run.lateness_ms),
      run.message ?? '',
    ]),
  ]);
}

export function runEnd(asked: Triggered, ended: JobRun | undefined, retry: Retry | undefined): string {
  if (!asked.success) return `Skipped: ${asked.message} (run ${asked.run_id}).`;
  if (!ended) return `Run ${asked.run_id}: ${asked.message}.`;
  const details = ended.details === null ? '' : `\n${JSON.stringify(ended.details, null, 2)}`;
  const again = retry
    ? `\nIt is tried again at ${time(retry.run_at)}: run ${retry.run_id}, attempt ${retry.attempt}.`
    : '';
  return `Run ${ended.id} ${ended.state} after ${took(ended.duration_ms)}: ${ended.message ?? ''}${details}${again}`;
}

export function backfilled(begun: Backfill, progress: BackfillProgress | undefined, dryRun = false): string {
  const { job_name: name, slots, first, last, blackout, queued, skipped, forgotten, schedulers } = begun;
  const dates = blackout > 0 ? ` ${blackout} more are on days on which it does not run.` : '';
  if (slots === 0) return `${name} has no slots in that time.${dates}`;
  const found = `${name} has ${slots} slots from ${time(first)} to ${time(last)}.${dates}`;
  if (dryRun) return found;
  if (progress) {
    const { succeeded, failed, cancelled, open } = progress;
    return `${found}\n${succeeded} succeeded, ${failed} failed, ${cancelled} cancelled, ${open} to come.`;
  }
  const noScheduler = schedulers === 0 && queued > 0 ? '\nNo scheduler runs now: they start when one does.' : '';
  const lost = forgotten > 0 ? ` ${forgotten} may have succeeded: their runs are not kept any more.` : '';
  return `${found}\n${queued} are queued; ${skipped} have succeeded or are open already.${lost}${noScheduler}`;
}

function when({ schedule, timezone, every_min_ms: least, every_max_ms: most }: JobStatus): string {
  if (schedule !== null) return `${schedule}${timezone === 'UTC' ? '' : ` ${timezone}`}`;
  return `every ${durationText(least!)}${least === most ? '' : `–${durationText(most!)}`}`;
}

/** A run that was cancelled, or lost with its scheduler, did not fail itself. */
function lastEnd({ last_run_success: isGood, failures_in_a_row: failures }: JobStatus): string {
  if (isGood) return 'ok';
  return failures > 0 ? 'failed' : 'stopped';
}

function cell(column: string, value: unknown): string {
  if (value instanceof Date) return time(value);
  if (typeof value === 'number' && column.endsWith('_ms')) return durationText(Math.round(value));
  if (typeof value === 'string') return value;
  return Array.isArray(value) ? value.join(', ') : JSON.stringify(value);
}

function took(ms: number | null): string {
  if (ms === null) return '–';
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;
}

function time(at: Date | null): string {
  return at === null ? '–' : timeText(at);
}
