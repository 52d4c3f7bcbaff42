const units = ['B', 'KB', 'MB', 'GB', 'TB'];

/** Bytes as people read them, decimal, as providers bill. With --json they are whole. */
export function sizeText(bytes: number): string {
  const size = Math.abs(bytes);
  const unit = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, size)) / 3)));
  const value = bytes / 1_000 ** unit;
  return `${unit === 0 || Math.abs(value) >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}
