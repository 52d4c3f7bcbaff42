import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { Events } from '../../src/events/index.ts';
import { Metrics } from '../../src/watch/index.ts';

it('docs/production/monitor.md names every metric', async () => {
  const page = await readFile('docs/production/monitor.md', 'utf8');
  const shown = [...page.matchAll(/`((?:pgfresh|process)_\w+)(?:\{[\w,]*\})?`/g)].map(([, name]) => name!);
  const metrics = new Metrics(new Events());
  metrics.showPairs(() => Promise.resolve(undefined));
  const text = await metrics.text();
  const names = [...text.matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name!);
  expect(new Set(shown)).toEqual(new Set(names));
});
