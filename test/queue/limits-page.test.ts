import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { sourceFunctions } from '../harness/called-functions.ts';
import { resolveConfig } from '../../src/config/index.ts';
import { syncRegistry } from '../../src/registry/index.ts';
import { Events } from '../../src/events/index.ts';
import { QueueScene } from './scene.ts';

const page = await readFile('docs/guides/limits.md', 'utf8');

it('docs/guides/limits.md shows a source that can be synced', async () => {
  const options = /defineSource\((\{.*?\})\)/s.exec(page)![1]!;
  const definition = JSON.parse(
    options
      .replaceAll(/(\w+):/g, '"$1":')
      .replaceAll("'", '"')
      .replace(/,\s*\}/, '}'),
  ) as { name: string };
  const scene = await QueueScene.open();
  await syncRegistry(scene.db, resolveConfig({ config: { sources: [definition] }, file: 'x.ts' }), new Events());
  const [row] = await scene.db.query(
    `select rate_limit_per_minute, viewed_share, quota_bytes, max_concurrency, one_key_at_a_time, breaker_failures from pgfresh.sources where name = 'market'`,
  );
  expect(row).toEqual({
    rate_limit_per_minute: 300,
    viewed_share: '0.2',
    quota_bytes: 20e9,
    max_concurrency: 20,
    one_key_at_a_time: true,
    breaker_failures: 5,
  });
});

it('docs/guides/limits.md computes the cost by its own formula', () => {
  const rows = [...page.matchAll(/^\| (\d+) \w+ \| (\d+)([smd]) \| ([\d.]+) \| ([\d,]+) \|$/gm)];
  expect(rows).toHaveLength(3);
  for (const [, pairs, time, unit, perMinute, perMonth] of rows) {
    const seconds = Number(time) * { s: 1, m: 60, d: 86_400 }[unit as 's' | 'm' | 'd'];
    const calls = (Number(pairs) * 60) / seconds;
    expect(Number(perMinute)).toBeCloseTo(calls, 3);
    expect(Number(perMonth!.replaceAll(',', ''))).toBeCloseTo(calls * 60 * 10 * 30, 0);
  }
});

it('docs/internals/limits.md names every function', async () => {
  const internals = await readFile('docs/internals/limits.md', 'utf8');
  expect(sourceFunctions.filter((name) => !internals.includes(`\`${name}\``))).toEqual([]);
});
