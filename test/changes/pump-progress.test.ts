import { describe, expect, it } from 'vitest';
import { PumpDuty } from '../../src/changes/pump-progress.ts';
import { Settling } from '../../src/changes/unmarked-writers.ts';

describe('marks that were published', () => {
  it('are kept for ten seconds, and then forgotten once', () => {
    const duty = new PumpDuty(0);
    duty.note('1:1:', true, 100);
    duty.note('2:2:', false, 200);
    duty.note('3:3:', true, 300);
    expect(duty.since).toBe('3:3:');
    expect(duty.takeOld(10_099)).toBeUndefined();
    expect(duty.takeOld(10_100)).toEqual({ from: undefined, to: '1:1:' });
    // Not with every turn of the pump.
    expect(duty.takeOld(10_300)).toBeUndefined();
    expect(duty.takeOld(11_100)).toEqual({ from: '1:1:', to: '3:3:' });
    expect(duty.takeOld(60_000)).toBeUndefined();
  });
});

describe('a type that is watched only just now', () => {
  const unsettled = [[1, 'noon']] as const;

  it('counts as changed at once, and whenever one ends who may have written before', () => {
    const settling = new Settling();
    // 5 and 8 run, 10 and 11 too, though the snapshot ends before them.
    const first = { snapshot: '5:10:5,8', unsettled, next: 12 };
    expect([settling.look(first), settling.takeSettled(first)]).toEqual([[1], []]);
    expect(settling.look({ ...first, next: 13 })).toEqual([]);
    // Later ones do not matter.
    expect(settling.look({ snapshot: '5:14:5,8,10,11,13', unsettled, next: 15 })).toEqual([]);
    expect(settling.look({ snapshot: '5:14:5,8,10', unsettled, next: 15 })).toEqual([1]);
    expect(settling.look({ snapshot: '8:14:8', unsettled, next: 15 })).toEqual([1]);
    const last = { snapshot: '14:14:', unsettled, next: 15 };
    expect([settling.look(last), settling.takeSettled(last)]).toEqual([[1], unsettled]);
  });

  it('is settled at once where nobody writes, and begins anew after a gap', () => {
    const settling = new Settling();
    const quiet = { snapshot: '5:5:', unsettled, next: 5 };
    expect([settling.look(quiet), settling.takeSettled(quiet)]).toEqual([[1], unsettled]);
    const again = { ...quiet, unsettled: [[1, 'evening']] as const };
    expect([settling.look(again), settling.takeSettled(again)]).toEqual([[1], again.unsettled]);
  });
});
