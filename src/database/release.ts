import { readFileSync } from 'node:fs';

/** Compatibility between processes and the functions in the database. */
export interface Protocol {
  /** Protocol of this version's processes. Raise it when processes of the previous version could not go on. */
  readonly own: number;
  /** The oldest protocol that works with this version's functions. */
  readonly least: number;
}

export const protocol: Protocol = { own: 1, least: 1 };

/** The version of this package; src/database and dist/database are equally far from its root. */
export const version = (
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
).version;
