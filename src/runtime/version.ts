import { readFileSync } from 'node:fs';

/** The version of this package; src/runtime and dist/runtime are equally far from its root. */
export const version = (
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
).version;
