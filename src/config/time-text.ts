/** A time as every command shows it: in UTC, to the second. With --json times are whole. */
export function timeText(at: Date | string): string {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? String(at) : time.toISOString().replace(/\.\d+Z$/, 'Z');
}
