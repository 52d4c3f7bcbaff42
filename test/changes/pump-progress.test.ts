import { describe, expect, it } from 'vitest';
import { PumpProgress } from '../../src/changes/pump-progress.ts';
import { UnmarkedWriters } from '../../src/changes/unmarked-writers.ts';

describe('published marks', () => {
  it('are kept for ten seconds, and then deleted once', () => {
    const progress = new PumpProgress(0);
    progress.published('1:1:', true, 100);
    progress.published('2:2:', false, 200);
    progress.published('3:3:', true, 300);
    expect(progress.since).toBe('3:3:');
    expect(progress.takeExpired(10_099)).toBeUndefined();
    expect(progress.takeExpired(10_100)).toEqual({ from: undefined, to: '1:1:' });
    // Not on every run of the pump.
    expect(progress.takeExpired(10_300)).toBeUndefined();
    expect(progress.takeExpired(11_100)).toEqual({ from: '1:1:', to: '3:3:' });
    expect(progress.takeExpired(60_000)).toBeUndefined();
  });
});

describe('a type that was just watched', () => {
  const unsettled = [[1, 'noon']] as const;

  it('counts as changed at once, and whenever a transaction ends that may have written before', () => {
    const writers = new UnmarkedWriters();
    // 5 and 8 are running, and so are 10 and 11, which began after the snapshot.
    const first = { snapshot: '5:10:5,8', unsettled, next: 12 };
    expect([writers.takeChanged(first), writers.takeSettled(first)]).toEqual([[1], []]);
    expect(writers.takeChanged({ ...first, next: 13 })).toEqual([]);
    // Later transactions do not matter.
    expect(writers.takeChanged({ snapshot: '5:14:5,8,10,11,13', unsettled, next: 15 })).toEqual([]);
    expect(writers.takeChanged({ snapshot: '5:14:5,8,10', unsettled, next: 15 })).toEqual([1]);
    expect(writers.takeChanged({ snapshot: '8:14:8', unsettled, next: 15 })).toEqual([1]);
    const last = { snapshot: '14:14:', unsettled, next: 15 };
    expect([writers.takeChanged(last), writers.takeSettled(last)]).toEqual([[1], unsettled]);
  });

  it('is settled at once if no transaction is running, and starts over after a gap', () => {
    const writers = new UnmarkedWriters();
    const quiet = { snapshot: '5:5:', unsettled, next: 5 };
    expect([writers.takeChanged(quiet), writers.takeSettled(quiet)]).toEqual([[1], unsettled]);
    const again = { ...quiet, unsettled: [[1, 'evening']] as const };
    expect([writers.takeChanged(again), writers.takeSettled(again)]).toEqual([[1], again.unsettled]);
  });
});
