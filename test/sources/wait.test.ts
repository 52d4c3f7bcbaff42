import { describe, expect, it } from 'vitest';
import { waitOf } from '../../src/sources/wait.ts';

const now = Date.UTC(2026, 10, 16, 12, 0, 0);
const epoch = now / 1000;
const wait = (headers: Record<string, string>, status = 200) => waitOf(status, new Headers(headers), now);

describe('Retry-After', () => {
  it.each<[string, number | undefined]>([
    ['120', 120_000],
    ['0', 0],
    [' 1.5 ', 1_500],
    ['Mon, 16 Nov 2026 12:00:30 GMT', 30_000],
    ['Mon, 16 Nov 2026 11:00:00 GMT', 0],
    ['99999999999', 86_400_000],
    ['soon', undefined],
    ['-5', undefined],
    ['', undefined],
  ])('of %s', (text, ms) => {
    expect(wait({ 'retry-after': text }, 429)).toBe(ms);
  });

  it('as a date is taken by the clock of the provider', () => {
    const headers = { 'retry-after': 'Mon, 16 Nov 2026 15:00:30 GMT', date: 'Mon, 16 Nov 2026 15:00:00 GMT' };
    expect(wait(headers, 503)).toBe(30_000);
  });
});

describe('the rest of a limit', () => {
  it.each<[string, Record<string, string>, number | undefined]>([
    ['seconds from now', { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '30' }, 30_000],
    ['a time in seconds', { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(epoch + 30) }, 30_000],
    ['a time in milliseconds', { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(now + 30_000) }, 30_000],
    ['a time that has passed', { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(epoch - 30) }, 0],
    ['a date', { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '2026-11-16T12:00:30Z' }, 30_000],
    ['a duration', { 'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': '6m0.5s' }, 360_500],
    ['a duration in ms', { 'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': '20ms' }, 20],
    ['another spelling', { 'x-rate-limit-remaining': '0', 'x-rate-limit-reset': '5' }, 5_000],
    ['without x', { 'ratelimit-remaining': '0', 'ratelimit-reset': '5' }, 5_000],
    ['of requests', { 'x-ratelimit-requests-remaining': '0', 'x-ratelimit-requests-reset': '7' }, 7_000],
    ['reset-after', { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset-after': '1.5' }, 1_500],
    ['below nothing', { 'x-ratelimit-remaining': '-1', 'x-ratelimit-reset': '5' }, 5_000],
    ['one header', { ratelimit: '"minute";r=0;t=30' }, 30_000],
    ['one header as it was before', { ratelimit: 'limit=300, remaining=0, reset=30' }, 30_000],
    ['one header with some left', { ratelimit: '"minute";r=20;t=30' }, undefined],
    ['some left', { 'x-ratelimit-remaining': '1', 'x-ratelimit-reset': '30' }, undefined],
    ['only a reset', { 'x-ratelimit-reset': '30' }, undefined],
    ['only none left', { 'x-ratelimit-remaining': '0' }, undefined],
    ['words', { 'x-ratelimit-remaining': 'none', 'x-ratelimit-reset': 'later' }, undefined],
    ['a word', { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': 'later' }, undefined],
    ['nothing', {}, undefined],
  ])('as %s', (_name, headers, ms) => {
    expect(wait(headers)).toBe(ms);
  });

  it('is none after a 429, whatever it says not', () => {
    expect(wait({ 'x-ratelimit-reset': '30' }, 429)).toBe(30_000);
    expect(wait({}, 429)).toBeUndefined();
  });

  it('does not shorten what Retry-After says', () => {
    const headers = { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '5', 'retry-after': '60' };
    expect(wait(headers, 429)).toBe(60_000);
  });
});
