import type { DataType } from '../config/index.ts';
import type { TableColumn } from '../registry/index.ts';
import type { WriteStatements } from './write-statement.ts';

/** How a data type is fetched, from the configuration. */
export type Fetcher = Pick<
  DataType,
  'sanity' | 'write' | 'nulls' | 'empty' | 'contentType' | 'row' | 'sourceTimestamp'
> & { readonly [Name in 'request' | 'schema' | 'rows']: NonNullable<DataType[Name]> };

/** The table of a data type, from the database. */
export interface MirrorTable {
  /** Quoted and schema-qualified. */
  readonly name: string;
  readonly columns: ReadonlyMap<string, TableColumn>;
  /** The columns of the unique constraint that identifies rows, including those of the key. */
  readonly target: readonly string[];
}

/** A data type that this process can refresh: its registry row and its fetcher. */
export interface RefreshType {
  readonly id: number;
  readonly name: string;
  /** Increases with each change that affects fetching or writing. */
  readonly definition: number;
  readonly source: string;
  readonly sourceId: number;
  readonly keyColumns: readonly string[];
  readonly normalise: 'none' | 'upper' | 'lower';
  readonly timestamp: string;
  /** The registry's column for the age of the data at the provider. */
  readonly sourceTimestamp: string | null;
  /** Milliseconds. */
  readonly ttl: number;
  /** What happens to the rows of a key when the provider has nothing for it. */
  readonly emptyRows: 'keep' | 'delete';
  /** Whether rows of keys without viewers are deleted after a while. */
  readonly evicts: boolean;
  /** The share of rows that may be deleted at once. */
  readonly maxDeletes: number;
  readonly fetcher: Fetcher;
  readonly table: MirrorTable;
  readonly statements: WriteStatements;
}

/** The values of the key columns, in order. */
export function keyPartsOf({ keyColumns }: Pick<RefreshType, 'keyColumns'>, key: string): string[] {
  return keyColumns.length === 1 ? [key] : key.split('|');
}
