import { readFile } from 'node:fs/promises';
import type { ApiKeyPlace } from '../config/index.ts';
import { StepFailure } from './step-failure.ts';

type Environment = Readonly<Record<string, string | undefined>>;

// Re-read regularly, because a secret mounted as a file can be replaced without a restart.
const goodFor = 60_000;

/** The API keys of a source, read from their environment variable or file when needed. */
export class ApiKeys {
  readonly #places: readonly ApiKeyPlace[];
  readonly #env: Environment;
  readonly #read = new Map<number, { readonly key: string; readonly at: number }>();

  constructor(places: readonly ApiKeyPlace[], env: Environment) {
    this.#places = places;
    this.#env = env;
  }

  /** The key with this index, from 0; undefined if the source has no keys. */
  async key(number: number): Promise<string | undefined> {
    if (this.#places.length === 0) return undefined;
    const place = this.#places[number];
    if (!place) {
      throw new StepFailure('config', `expected an API key from 0 to ${this.#places.length - 1}, got ${number}`);
    }
    const known = this.#read.get(number);
    if (known && performance.now() - known.at < goodFor) return known.key;
    const key = 'env' in place ? this.#ofVariable(place.env) : await ofFile(place.file);
    this.#read.set(number, { key, at: performance.now() });
    return key;
  }

  #ofVariable(name: string): string {
    return checked(this.#env[name], `the variable ${name}`);
  }
}

async function ofFile(path: string): Promise<string> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    const { code } = error as NodeJS.ErrnoException;
    throw new StepFailure('config', `expected an API key in the file ${path}, which cannot be read (${code})`);
  });
  return checked(text, `the file ${path}`);
}

function checked(text: string | undefined, where: string): string {
  const key = text?.trim() ?? '';
  if (key === '') throw new StepFailure('config', `expected an API key in ${where}, got nothing`);
  if (/\p{Cc}/u.test(key)) throw new StepFailure('config', `expected an API key of one line in ${where}`);
  return key;
}
