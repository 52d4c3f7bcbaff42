import type { Refusal } from './fresh.ts';

export const closed: Refusal = {
  code: 'PGF_CLIENT_CLOSED',
  message: 'This client is closed.',
  next: 'Make another one with createClient.',
};

export function unreachable(url: string): Refusal {
  return {
    code: 'PGF_CLIENT_UNREACHABLE',
    message: `There is no connection to ${url}.`,
    next: 'It is tried again. Does the server run, and is this page one of its origins?',
  };
}

export function noToken(error: unknown): Refusal {
  const problem = error instanceof Error ? error.message : String(error);
  return {
    code: 'PGF_CLIENT_TOKEN',
    message: `There is no token: ${problem}`,
    next: 'It is tried again. Look at the token of createClient.',
  };
}
