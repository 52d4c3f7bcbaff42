import type { DataType } from '../config/index.ts';
import type { TableColumn } from '../registry/index.ts';
import type { WriteStatements } from './write-statement.ts';

/** How a data type is fetched, as the configuration says it. */
export type Fetcher = Pick<
  DataType,
  'sanity' | 'write' | 'nulls' | 'empty' | 'contentType' | 'row' | 'sourceTimestamp'
> & { readonly [Name in 'request' | 'schema' | 'rows']: NonNullable<DataType[Name]> };

/** The table of a data type, as it is in the database. */
export interface MirrorTable {
  /** Quoted, with its schema. */
  readonly name: string;
  readonly columns: ReadonlyMap<string, TableColumn>;
  /** The columns of the unique constraint by which rows are recognised; those of the key are among them. */
  readonly target: readonly string[];
}

/** A data type of the registry that this process can refresh: what the database says of it, and its fetcher. */
export interface RefreshType {
  readonly id: number;
  readonly name: string;
  /** Grows with each change of what a fetch or a write depends on. */
  readonly definition: number;
  readonly source: string;
  readonly sourceId: number;
  readonly keyColumns: readonly string[];
  readonly normalise: 'none' | 'upper' | 'lower';
  readonly timestamp: string;
  /** The column that says how old the data is at the provider, as the registry names it. */
  readonly sourceTimestamp: string | null;
  /** Milliseconds. */
  readonly ttl: number;
  /** What becomes of the rows of a key when the provider has nothing for it. */
  readonly emptyRows: 'keep' | 'delete';
  /** Whether rows of keys without viewers are deleted after a while. */
  readonly evicts: boolean;
  /** The share of rows that may go at once. */
  readonly maxDeletes: number;
  readonly fetcher: Fetcher;
  readonly table: MirrorTable;
  readonly statements: WriteStatements;
}

/** A key as the values of the key columns, in their order. */
export function keyPartsOf({ keyColumns }: Pick<RefreshType, 'keyColumns'>, key: string): string[] {
  return keyColumns.length === 1 ? [key] : key.split('|');
}
