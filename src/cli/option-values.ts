import { InvalidArgumentError } from 'commander';

/** Parses an option like the configuration does. */
export function parsed<T>(schema: {
  safeParse(text: string): { success: boolean; data?: T; error?: { issues: { message: string }[] } };
}) {
  return (text: string): T => {
    const { success, data, error } = schema.safeParse(text);
    if (!success) throw new InvalidArgumentError(error?.issues[0]?.message ?? '');
    return data!;
  };
}

/** Parses a time with a zone, or a date, which means midnight in UTC. */
export function instant(text: string): Date {
  const time = new Date(text);
  const isWhole = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/.test(text);
  if (!isWhole || Number.isNaN(time.getTime()))
    throw new InvalidArgumentError(
      'expected a time in UTC or with its offset, such as 2026-11-01 or 2026-11-01T06:00Z',
    );
  return time;
}

/** Parses a number from 1 to `max`. */
export function upTo(max: number) {
  return (text: string): number => {
    const count = Number(text);
    if (!/^\d+$/.test(text) || count < 1 || count > max)
      throw new InvalidArgumentError(`expected a number from 1 to ${max}`);
    return count;
  };
}
