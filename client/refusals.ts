import type { Refusal } from './fresh.ts';

const refusal = (name: string, message: string, next: string): Refusal => ({
  code: `PGF_CLIENT_${name}`,
  message,
  next,
});

export const closed = refusal('CLOSED', 'This client is closed.', 'Call createClient again.');

export const unreachable = (url: string): Refusal =>
  refusal('UNREACHABLE', `No connection to ${url}.`, 'Is this page in gateway.origins? The client retries.');

export const noToken = (error: unknown): Refusal =>
  refusal('TOKEN', `No token: ${(error as Error | undefined)?.message ?? (error as string)}`, 'The client retries.');

export const invalidUrl = (given: string | undefined): Refusal =>
  refusal('URL', `Expected a url, got ${JSON.stringify(given)}.`, 'Pass a url.');

export const invalidName = (what: string, longest: number, given: unknown): Refusal =>
  refusal(
    'PAIR',
    `A ${what} has 1 to ${longest} characters, got ${JSON.stringify(given)?.slice(0, 40)}.`,
    'Wait until it is known.',
  );
