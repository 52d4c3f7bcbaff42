import { isDeepStrictEqual } from 'node:util';

/** Whether rows that are about the same are the same. Repeating one does no harm; which of two that differ is true nobody knows. */
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
