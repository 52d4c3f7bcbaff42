import { InvalidArgumentError } from 'commander';

/** An option that is an instant. It has a zone, or is a date and means its midnight in UTC. */
export function instant(text: string): Date {
  const time = new Date(text);
  const isWhole = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/.test(text);
  if (!isWhole || Number.isNaN(time.getTime()))
    throw new InvalidArgumentError(
      'expected a time in UTC or with its offset, such as 2026-11-01 or 2026-11-01T06:00Z',
    );
  return time;
}
