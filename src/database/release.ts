import { readFileSync } from 'node:fs';

/** How processes and the functions in the database talk to each other. */
export interface Protocol {
  /** Of the processes of this version. Raise it when a process of the version before could not go on. */
  readonly own: number;
  /** The oldest one whose processes work with the functions of this version. */
  readonly least: number;
}

export const protocol: Protocol = { own: 1, least: 1 };

/** The version of this package; src/database and dist/database are equally far from its root. */
export const version = (
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
).version;
