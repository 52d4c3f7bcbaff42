import { isDeepStrictEqual } from 'node:util';

/** Whether rows with the same key are equal. A repeated row is harmless; of two that differ, neither can be trusted. */
export function agree<Row>(about: (row: Row) => string): (rows: readonly Row[]) => boolean {
  return (rows) => {
    const seen = new Map<string, Row>();
    return rows.every((row) => {
      const other = seen.get(about(row));
      seen.set(about(row), row);
      return other === undefined || isDeepStrictEqual(other, row);
    });
  };
}
