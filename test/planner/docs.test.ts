import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { reasons } from '../../src/planner/index.ts';
import { playSession } from '../harness/sql-session.ts';
import { QueueScene } from '../queue/scene.ts';

const page = await readFile('docs/production/troubleshoot.md', 'utf8');

test('docs/production/troubleshoot.md says what to do about every reason', () => {
  const section = page.slice(page.indexOf('## A value is not fresh'), page.indexOf('## Nothing is fetched'));
  const rows = [...section.matchAll(/^\| ((?:`\w+`(?:, )?)+) \| /gm)].flatMap(([, cell]) => cell!.match(/\w+/g)!);
  expect(rows.toSorted()).toEqual(Object.keys(reasons).toSorted());
});

test('docs/production/troubleshoot.md shows how to refresh at once what waits after a failure', async () => {
  const scene = await QueueScene.open();
  const ask = `select pgfresh.queue_refresh_if_not_exists('AAPL', 'quote', 1000) ->> 'result' as result`;
  await scene.db.query(ask);
  const { id } = await scene.claimOne();
  await scene.db.query(`select pgfresh.fail_queue_job($1::bigint, 'a key that is wrong')`, [id]);
  expect(await scene.db.query(ask)).toEqual([{ result: 'merged' }]);
  expect(await scene.claim()).toEqual([]);
  await scene.db.query(/```sql\n(.*?)```/s.exec(page)![1]!);
  expect(await scene.claim()).toMatchObject([{ key: 'AAPL', priority: 1000 }]);
});

test('docs/guides/demand-from-sql.md shows a session that answers as it says', async () => {
  expect(await playSession(await readFile('docs/guides/demand-from-sql.md', 'utf8'))).toBeGreaterThan(10);
});
