import type { DataTypeDefinition } from 'pgfresh';
import type { z } from 'zod';

/** What a data type says about its fetching, as pgfresh reads it. */
interface Fetching<Answer extends z.ZodType, Row extends z.ZodType> {
  readonly schema: Answer;
  readonly row: Row;
  readonly sourceTimestamp: string;
  readonly write: 'merge' | 'replace';
  readonly request: (key: string) => { url: string; query?: Readonly<Record<string, string | number>> };
  readonly rows: (answer: z.output<Answer>) => z.input<Row> | readonly z.input<Row>[];
  readonly sanity: (row: z.input<Row>, context: { readonly now: Date }) => string | undefined;
}

export function marketType<Answer extends z.ZodType, Row extends z.ZodType>(
  type: Omit<DataTypeDefinition, keyof Fetching<Answer, Row>> & Fetching<Answer, Row>,
) {
  return type;
}
