import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { errorTable } from '../../src/errors/index.ts';
import { Events, warnings } from '../../src/events/index.ts';
import { Metrics } from '../../src/watch/index.ts';

const page = await readFile('docs/production/monitor.md', 'utf8');
const metrics = new Metrics(new Events());
metrics.showPairs(() => Promise.resolve(undefined));
const names = new Set([...(await metrics.text()).matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name!));

it('docs/production/monitor.md names every metric', () => {
  const shown = [...page.matchAll(/`((?:pgfresh|process)_\w+)(?:\{[\w,]*\})?`/g)].map(([, name]) => name!);
  expect(new Set(shown)).toEqual(names);
});

it('docs/production/monitor.md alerts on metrics, warnings and errors that exist', () => {
  const [, rules] = /```yaml\n(.*?)```/s.exec(page)!;
  const used = [...rules!.matchAll(/\b(pgfresh_\w+?)(?:_count)?\{/g)].map(([, name]) => name!);
  expect(used.length).toBeGreaterThan(5);
  expect(used.filter((name) => !names.has(name))).toEqual([]);
  const codes = [...rules!.matchAll(/code=~"([\w|]+)"/g)].flatMap(([, list]) => list!.split('|'));
  expect(codes.length).toBeGreaterThan(10);
  expect(codes.filter((code) => !(code in warnings) && !(code in errorTable))).toEqual([]);
});
