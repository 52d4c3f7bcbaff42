import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { sourceFunctions } from '../harness/called-functions.ts';
import { resolveConfig } from '../../src/config/index.ts';
import { syncRegistry } from '../../src/registry/index.ts';
import { Events } from '../../src/events/index.ts';
import { QueueScene } from './scene.ts';

const page = await readFile('docs/guides/limits.md', 'utf8');

it('docs/guides/limits.md shows a source that can be synced, with the columns that it names', async () => {
  const options = /defineSource\((\{.*?\})\)/s.exec(page)![1]!;
  const definition = JSON.parse(
    options
      .replaceAll(/(\w+):/g, '"$1":')
      .replaceAll("'", '"')
      .replace(/,\s*\}/, '}'),
  ) as { name: string };
  const scene = await QueueScene.open();
  await syncRegistry(scene.db, resolveConfig({ config: { sources: [definition] }, file: 'x.ts' }), new Events());
  const columns = /The same columns exist in `pgfresh.sources`: (.*?)\. A source/.exec(page)![1]!;
  const names = [...columns.matchAll(/`(\w+)`/g)].map((match) => match[1]!);
  const [row] = await scene.db.query(`select ${names.join(', ')} from pgfresh.sources where name = 'market'`);
  expect(row).toEqual({
    rate_limit_per_minute: 300,
    viewed_share: '0.2',
    quota_bytes: 20e9,
    max_concurrency: 20,
    one_key_at_a_time: true,
    breaker_failures: 5,
    breaker_window: expect.anything() as unknown,
    breaker_pause: expect.anything() as unknown,
    api_keys: 1,
  });
});

it('docs/guides/limits.md names every function', () => {
  expect(sourceFunctions.filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
});
