/** A provider that asks for a year is mistaken, so waits are capped at a day. */
const longest = 86_400_000;

const remainingNames = [
  'x-ratelimit-remaining',
  'x-rate-limit-remaining',
  'ratelimit-remaining',
  'x-ratelimit-requests-remaining',
  'x-ratelimit-remaining-requests',
  'x-ratelimit-remaining-minute',
];
const resetNames = [
  'x-ratelimit-reset-after',
  'x-ratelimit-reset',
  'x-rate-limit-reset',
  'ratelimit-reset',
  'x-ratelimit-requests-reset',
  'x-ratelimit-reset-requests',
  'x-ratelimit-reset-minute',
];

type Readable = Pick<Headers, 'get'>;

/** How long the source asks not to be called, if the answer says so. `now` is when the answer came. */
export function waitOf(status: number, headers: Readable, now: number): number | undefined {
  // Reset times are on the provider's clock; its Date header cancels out our clock's error.
  const said = Date.parse(headers.get('date') ?? '');
  const base = Number.isNaN(said) ? now : said;
  const waits = [retryAfter(headers, base), untilReset(status, headers, base)].filter((ms) => ms !== undefined);
  return waits.length === 0 ? undefined : Math.min(Math.max(...waits), longest);
}

function retryAfter(headers: Readable, base: number): number | undefined {
  const text = headers.get('retry-after')?.trim();
  if (!text) return undefined;
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1_000;
  return untilDate(text, base);
}

function untilReset(status: number, headers: Readable, base: number): number | undefined {
  const one = structured(headers);
  const remaining = one ? one.remaining : first(headers, remainingNames);
  const isUsedUp = remaining === undefined ? status === 429 : Number(remaining) <= 0;
  if (!isUsedUp) return undefined;
  const reset = one ? one.reset : first(headers, resetNames);
  return reset === undefined ? undefined : msUntil(reset, base);
}

function first(headers: Readable, names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = headers.get(name)?.trim();
    if (value) return value;
  }
  return undefined;
}

/** The single header of the IETF drafts: `"minute";r=0;t=30`, formerly `limit=300, remaining=0, reset=30`. */
function structured(headers: Readable): { remaining: string | undefined; reset: string | undefined } | undefined {
  const text = headers.get('ratelimit');
  if (!text) return undefined;
  const value = (names: string) => new RegExp(`(?:^|[;,\\s])(?:${names})\\s*=\\s*(\\d+)`).exec(text)?.[1];
  return { remaining: value('r|remaining'), reset: value('t|reset') };
}

/** Parses seconds from now, a Unix time in seconds or milliseconds, a date, or a duration such as "6m0s". */
function msUntil(reset: string, base: number): number | undefined {
  if (/^\d+(\.\d+)?$/.test(reset)) {
    const number = Number(reset);
    if (number > 1e11) return Math.max(0, number - base);
    return number > 1e9 ? Math.max(0, number * 1_000 - base) : number * 1_000;
  }
  const parts = [...reset.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)];
  if (parts.length > 0 && parts.map(([part]) => part).join('') === reset) {
    return parts.reduce((sum, [, count, unit]) => sum + Number(count) * units[unit as keyof typeof units], 0);
  }
  return untilDate(reset, base);
}

function untilDate(text: string, base: number): number | undefined {
  // Date.parse reads even "-5" as a year.
  const date = /[A-Z]/i.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(date) ? undefined : Math.max(0, date - base);
}

const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
