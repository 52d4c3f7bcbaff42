import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { routes } from '../../../examples/market/provider/answers.ts';
import { faults } from '../../../examples/market/provider/faults/index.ts';
import { readOptions, usage } from '../../../examples/market/provider/options.ts';
import { marketTypes } from '../../../examples/market/types/index.ts';
import { openMarket, ProviderScene } from './scene.ts';

const page = await readFile('docs/guides/market-example.md', 'utf8');

describe('docs/guides/market-example.md', () => {
  it('orders faults that exist, and takes them back', async () => {
    const scene = await ProviderScene.open();
    const orders = [...page.matchAll(/\/admin\/faults -d '(.*)'/g)].map(([, order]) => JSON.parse(order!) as unknown);
    expect(orders).toHaveLength(4);
    for (const order of orders) expect(await scene.admin('POST', '/faults', order)).toMatchObject({ status: 201 });
    expect((await scene.admin('DELETE', '/faults/3')).status).toBe(200);
    expect((await scene.admin('DELETE', '/faults')).body).toEqual({ cancelled: 3 });
    expect(page).toContain(`[${Object.keys(faults).length} ways to lie](market-faults.md)`);
  });

  it('names all routes, options and data types', () => {
    expect([...page.matchAll(/`\/v1\/([\w-]+)\/:symbol/g)].map(([, route]) => route)).toEqual(routes);
    const shown = [...page.matchAll(/^\| (`--.*`) \|/gm)].flatMap(([, cell]) =>
      [...cell!.matchAll(/`(--[^`]*)`/g)].map(([, text]) => text!),
    );
    for (const option of shown) readOptions(option.split(' '));
    const names = (text: string) => new Set([...text.matchAll(/--[a-z-]+/g)].map(([name]) => name));
    expect(names(shown.join(' '))).toEqual(names(usage));
    const types = [...page.matchAll(/^\| `([\w-]+)` \| `(\w+)` \|/gm)].map(([, name, table]) => `${name} ${table}`);
    expect(types).toEqual(marketTypes.map(({ name, table }) => `${name} ${table}`));
  });

  it('shows SQL that runs', async () => {
    const { db } = await openMarket();
    const rows = await db.query<{ exchange: string }>(/```sql\n(.*?)```/s.exec(page)![1]!);
    expect(rows).toHaveLength(5);
    expect(rows.find(({ exchange }) => exchange === 'XTOK')).toMatchObject({ open: true });
  });
});
