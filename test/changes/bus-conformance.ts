import { describe, expect, it, onTestFinished } from 'vitest';
import type { Bus, Change, ChangeNotice } from '../../src/changes/index.ts';

/** Opens processes' ends of one bus, and breaks them. */
export interface BusUnderTest {
  /** The end of one process, not started. */
  readonly open: () => Bus;
  /** Cuts the connections of all open ends. */
  readonly cut: () => void;
}

/** A started end that collects its notices. */
async function listen({ open }: BusUnderTest) {
  const bus = open();
  const notices: ChangeNotice[] = [];
  let changed = Promise.withResolvers<void>();
  const unsubscribe = bus.subscribe((notice) => {
    notices.push(notice);
    changed.resolve();
    changed = Promise.withResolvers();
  });
  onTestFinished(() => bus.stop());
  await bus.start();
  /** Resolves once the notices meet the condition. */
  const until = async (condition: (notices: readonly ChangeNotice[]) => boolean): Promise<void> => {
    while (!condition(notices)) await changed.promise;
  };
  return { bus, notices, until, unsubscribe };
}

/** What every bus must do, whatever carries it. */
export function testBus(name: string, prepare: () => Promise<BusUnderTest>): void {
  describe(`the bus ${name}`, () => {
    const keyed = (type: number, ...keys: string[]): Change => ({ type, keys });

    /** The keys of a type in the notices, or "whole". */
    const of = (notices: readonly ChangeNotice[], type: number): string[] =>
      notices
        .flatMap((notice) => (notice === 'missed' ? [] : notice))
        .flatMap((change) => (change.type === type ? (change.keys ?? ['whole']) : []));

    it('reaches every process, including the one that publishes', async () => {
      const under = await prepare();
      const [one, two] = [await listen(under), await listen(under)];
      await one.bus.publish([keyed(1, 'A', 'B'), { type: 2, keys: undefined }]);
      for (const { until, notices } of [one, two]) {
        await until((list) => of(list, 1).length === 2 && of(list, 2).length === 1);
        expect([of(notices, 1), of(notices, 2)]).toEqual([['A', 'B'], ['whole']]);
      }
    });

    it('reaches every subscriber of a process, until it unsubscribes', async () => {
      const { bus, until, notices, unsubscribe } = await listen(await prepare());
      const others: ChangeNotice[] = [];
      bus.subscribe((notice) => others.push(notice));
      await bus.publish([keyed(1, 'A')]);
      await until((list) => list.length > 0);
      unsubscribe();
      const last = new Promise<void>((resolve) =>
        bus.subscribe((notice) => notice !== 'missed' && notice[0]!.type === 3 && resolve()),
      );
      await bus.publish([keyed(2, 'B')]);
      await bus.publish([keyed(3, 'C')]);
      await last;
      expect([notices.length, of(others, 2)]).toEqual([1, ['B']]);
    });

    it('carries any keys, and any number of them', async () => {
      const { bus, until, notices } = await listen(await prepare());
      const keys = [
        ...Array.from({ length: 20_000 }, (_, index) => `key ${index}`),
        ...Array.from({ length: 100 }, (_, index) => `${'"\\'.repeat(250)}${index}`),
        ...Array.from({ length: 100 }, (_, index) => `${'é€'.repeat(100)}${index}`),
        'a|b',
        ',',
        '{}',
        "'",
        '[]',
        'null',
        ' ',
        '😀',
      ];
      await bus.publish([keyed(1, ...keys), keyed(2, 'last')]);
      await until((list) => of(list, 1).length >= keys.length && of(list, 2).length > 0);
      expect(new Set(of(notices, 1))).toEqual(new Set(keys));
    });

    it('carries the transactions, or that they are unknown', async () => {
      const { bus, until, notices } = await listen(await prepare());
      const known = [
        { ...keyed(1, 'A'), xids: [7, 2 ** 40] },
        { type: 2, keys: undefined, xids: [9] },
        keyed(3, 'last'),
      ];
      await bus.publish(known);
      await until((list) => of(list, 3).length > 0);
      expect(notices.flat()).toEqual(known);
    });

    it('sends nothing for an empty change', async () => {
      const { bus, until, notices } = await listen(await prepare());
      await bus.publish([]);
      await bus.publish([{ type: 1, keys: [] }]);
      await bus.publish([keyed(2, 'A')]);
      await until((list) => of(list, 2).length > 0);
      expect(of(notices, 1)).toEqual([]);
    });

    it('reports missed changes after a lost connection, and continues', async () => {
      const under = await prepare();
      const [one, two] = [await listen(under), await listen(under)];
      under.cut();
      await one.until((list) => list.includes('missed'));
      await two.until((list) => list.includes('missed'));
      await two.bus.publish([keyed(1, 'A')]);
      await one.until((list) => of(list, 1).length > 0);
      expect(one.notices.at(-1)).toEqual([keyed(1, 'A')]);
    });

    it('does not reach a stopped end; an end may be stopped twice, and before its start', async () => {
      const under = await prepare();
      const [one, two] = [await listen(under), await listen(under)];
      await one.bus.stop();
      await one.bus.stop();
      await under.open().stop();
      await two.bus.publish([keyed(1, 'A')]);
      await two.until((list) => of(list, 1).length > 0);
      expect(one.notices).toEqual([]);
    });
  });
}
