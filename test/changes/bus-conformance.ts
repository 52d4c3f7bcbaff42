import { describe, expect, it, onTestFinished } from 'vitest';
import type { Bus, Change, Heard } from '../../src/changes/index.ts';

/** A way to make processes' ends of one bus, and to do them harm. */
export interface BusUnderTest {
  /** One end of the bus, as a process has it; not started. */
  readonly open: () => Bus;
  /** Ends the connections of all that are open, without a goodbye. */
  readonly cut: () => void;
}

/** A started end that collects what it hears. */
async function listen({ open }: BusUnderTest) {
  const bus = open();
  const heard: Heard[] = [];
  let changed = Promise.withResolvers<void>();
  const unsubscribe = bus.subscribe((one) => {
    heard.push(one);
    changed.resolve();
    changed = Promise.withResolvers();
  });
  onTestFinished(() => bus.stop());
  await bus.start();
  /** Settles when so much was heard that it satisfies. */
  const until = async (isEnough: (heard: readonly Heard[]) => boolean): Promise<void> => {
    while (!isEnough(heard)) await changed.promise;
  };
  return { bus, heard, until, unsubscribe };
}

/** What every bus must do, whatever carries it. */
export function testBus(name: string, prepare: () => Promise<BusUnderTest>): void {
  describe(`the bus ${name}`, () => {
    const keyed = (type: number, ...keys: string[]): Change => ({ type, keys });

    /** Everything that was heard of a type: its keys, or "whole". */
    const of = (heard: readonly Heard[], type: number): string[] =>
      heard
        .flatMap((one) => (one === 'missed' ? [] : one))
        .flatMap((change) => (change.type === type ? (change.keys ?? ['whole']) : []));

    it('tells every process, the one that publishes too', async () => {
      const under = await prepare();
      const [one, two] = [await listen(under), await listen(under)];
      await one.bus.publish([keyed(1, 'A', 'B'), { type: 2, keys: undefined }]);
      for (const { until, heard } of [one, two]) {
        await until((list) => of(list, 1).length === 2 && of(list, 2).length === 1);
        expect([of(heard, 1), of(heard, 2)]).toEqual([['A', 'B'], ['whole']]);
      }
    });

    it('tells every subscriber of a process, until he leaves', async () => {
      const { bus, until, heard, unsubscribe } = await listen(await prepare());
      const others: Heard[] = [];
      bus.subscribe((one) => others.push(one));
      await bus.publish([keyed(1, 'A')]);
      await until((list) => list.length > 0);
      unsubscribe();
      const last = new Promise<void>((resolve) =>
        bus.subscribe((one) => one !== 'missed' && one[0]!.type === 3 && resolve()),
      );
      await bus.publish([keyed(2, 'B')]);
      await bus.publish([keyed(3, 'C')]);
      await last;
      expect([heard.length, of(others, 2)]).toEqual([1, ['B']]);
    });

    it('carries keys of every sort and any number', async () => {
      const { bus, until, heard } = await listen(await prepare());
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
      expect(new Set(of(heard, 1))).toEqual(new Set(keys));
    });

    it('says by which transactions it was, or that nobody knows', async () => {
      const { bus, until, heard } = await listen(await prepare());
      const known = [
        { ...keyed(1, 'A'), xids: [7, 2 ** 40] },
        { type: 2, keys: undefined, xids: [9] },
        keyed(3, 'last'),
      ];
      await bus.publish(known);
      await until((list) => of(list, 3).length > 0);
      expect(heard.flat()).toEqual(known);
    });

    it('tells nobody of nothing', async () => {
      const { bus, until, heard } = await listen(await prepare());
      await bus.publish([]);
      await bus.publish([{ type: 1, keys: [] }]);
      await bus.publish([keyed(2, 'A')]);
      await until((list) => of(list, 2).length > 0);
      expect(of(heard, 1)).toEqual([]);
    });

    it('says after a lost connection that something may have been missed, and goes on', async () => {
      const under = await prepare();
      const [one, two] = [await listen(under), await listen(under)];
      under.cut();
      await one.until((list) => list.includes('missed'));
      await two.until((list) => list.includes('missed'));
      await two.bus.publish([keyed(1, 'A')]);
      await one.until((list) => of(list, 1).length > 0);
      expect(one.heard.at(-1)).toEqual([keyed(1, 'A')]);
    });

    it('publishes without being heard by one that was stopped, and stops twice, and before its start', async () => {
      const under = await prepare();
      const [one, two] = [await listen(under), await listen(under)];
      await one.bus.stop();
      await one.bus.stop();
      await under.open().stop();
      await two.bus.publish([keyed(1, 'A')]);
      await two.until((list) => of(list, 1).length > 0);
      expect(one.heard).toEqual([]);
    });
  });
}
