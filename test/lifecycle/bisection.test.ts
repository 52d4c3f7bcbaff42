import { describe, expect, test } from 'vitest';
import { BatchSize, halves } from '../../src/lifecycle/index.ts';

test('halves keep the order, and the first is not the smaller one', () => {
  expect(halves([1, 2, 3, 4])).toEqual([
    [1, 2],
    [3, 4],
  ]);
  expect(halves([1, 2, 3])).toEqual([[1, 2], [3]]);
});

describe('the size of a batch', () => {
  test('shrinks by what was tried, down to one', () => {
    const batch = new BatchSize(500);
    expect(batch.isFull).toBe(true);
    batch.shrink(9);
    expect(batch.size).toBe(4);
    batch.shrink(4, 4);
    batch.shrink(1);
    expect(batch.size).toBe(1);
  });

  test('grows again, to the most and not beyond', () => {
    const batch = new BatchSize(10);
    batch.shrink(10);
    batch.grow();
    expect([batch.size, batch.isFull]).toEqual([10, true]);
    batch.shrink(7);
    batch.grow();
    expect([batch.size, batch.isFull]).toEqual([6, false]);
    batch.grow();
    expect([batch.size, batch.isFull]).toEqual([10, true]);
  });
});
