import type { z } from 'zod';
import { marketTypes } from '../../../examples/market/types/index.ts';

export type MarketRow = Record<string, unknown> & { readonly symbol: string; readonly source_updated_at: string };

/** A data type of the example with all that it is made of, which `defineDataType` does not show. */
export interface OpenType {
  readonly name: string;
  readonly table: string;
  readonly timestamp: string;
  readonly schema: z.ZodType;
  readonly row: z.ZodType;
  readonly request: (key: string) => {
    readonly url: string;
    readonly query?: Readonly<Record<string, string | number>>;
  };
  readonly rows: (answer: unknown) => MarketRow | MarketRow[];
  readonly sanity: (row: unknown, context: { readonly now: Date }) => string | undefined;
}

export const openTypes = marketTypes as unknown as readonly [OpenType, OpenType, OpenType, OpenType, OpenType];

/** The route of the provider that answers for it. */
export function routeOf(type: OpenType): string {
  return type.request('AAPL').url.split('/')[2]!;
}
