import { readFileSync } from 'node:fs';

/** The version of this package. The relative path is the same from src/runtime and dist/runtime. */
export const version = (
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
).version;
