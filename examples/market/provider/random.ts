/** Numbers that look random and are a pure function of what they are made from, so that any moment can be asked for. */

/** A hash of 32 bits. */
export function hash(...parts: readonly (number | string)[]): number {
  let state = 0x9e3779b9;
  for (const part of parts) {
    if (typeof part === 'number') state = mix(state ^ Math.trunc(part)) ^ Math.trunc(part / 2 ** 32);
    else for (let at = 0; at < part.length; at++) state = Math.imul(state ^ part.charCodeAt(at), 0x01000193);
    state = mix(state + 0x6d2b79f5);
  }
  return state >>> 0;
}

/** In [0, 1). */
export function uniform(...parts: readonly (number | string)[]): number {
  return hash(...parts) / 2 ** 32;
}

/** Normally distributed, with mean 0 and deviation 1. */
export function normal(...parts: readonly (number | string)[]): number {
  const first = hash(...parts);
  const second = mix(first ^ 0x5bd1e995) >>> 0;
  return Math.sqrt(-2 * Math.log((first + 1) / (2 ** 32 + 1))) * Math.cos((2 * Math.PI * second) / 2 ** 32);
}

/** One of a list. */
export function pick<Item>(items: readonly Item[], ...parts: readonly (number | string)[]): Item {
  return items[hash(...parts) % items.length]!;
}

function mix(value: number): number {
  let mixed = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return mixed ^ (mixed >>> 16);
}
