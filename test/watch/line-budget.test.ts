import { expect, it } from 'vitest';
import { LineBudget } from '../../src/watch/line-budget.ts';

it('lets ten lines a second through of what happens often, and tells how many it left out', () => {
  let now = 0;
  const budget = new LineBudget(() => now);
  const lines = Array.from({ length: 25 }, () => budget.ask('refresh.ended'));
  expect(lines.filter((leftOut) => leftOut === 0)).toHaveLength(10);
  expect(lines.slice(10)).toEqual(Array.from({ length: 15 }, () => undefined));
  now = 999;
  expect(budget.ask('worker.failed')).toBeUndefined();
  now = 1_000;
  expect(budget.ask('worker.failed')).toBe(16);
  expect(budget.ask('worker.failed')).toBe(0);
});

it.each(['gateway.refused', 'gateway.failed'] as const)('lets no client fill the log by %s', (type) => {
  const budget = new LineBudget(() => 0);
  const lines = Array.from({ length: 500 }, () => budget.ask(type));
  expect(lines.filter((leftOut) => leftOut !== undefined)).toHaveLength(10);
});

it('never leaves out what is rare', () => {
  const budget = new LineBudget(() => 0);
  for (let n = 0; n < 30; n++) budget.ask('refresh.ended');
  expect(budget.ask('process.stopping')).toBe(20);
  expect(Array.from({ length: 30 }, () => budget.ask('warning'))).toEqual(Array.from({ length: 30 }, () => 0));
});
