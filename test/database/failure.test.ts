import { DatabaseError } from 'pg';
import { expect, it } from 'vitest';
import { failureOf, type Failure } from '../../src/database/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';

const database = openDatabase(await createDatabase());
await database.query(`create table item (id int primary key, size int check (size > 0), parent int references item)`);
await database.query(`insert into item values (1, 1, null)`);
await database.query(`create function shout() returns void language plpgsql as $$ begin raise exception 'no'; end $$`);

// Each made for real; the class is what callers decide by.
it.each<[Failure, string]>([
  ['unique', `insert into item values (1, 1, null)`],
  ['foreign_key', `insert into item values (2, 1, 99)`],
  ['constraint', `insert into item values (3, -1, null)`],
  ['constraint', `insert into item values (null, 1, null)`],
  ['invalid_data', `select 'x'::text::int`],
  ['invalid_data', `select 1 / (select 0)`],
  ['statement_timeout', `set local statement_timeout = 5; select pg_sleep(5)`],
  [
    'lock_timeout',
    `set local lock_timeout = 1; select pg_notify('x', ''); do $$ begin raise lock_not_available; end $$`,
  ],
  ['readonly', `set local transaction_read_only = on; insert into item values (4, 1, null)`],
  ['permission', `set local role pg_monitor; select * from item`],
  ['missing_object', `select * from nowhere`],
  ['missing_object', `select nothing()`],
  ['raised', `select shout()`],
  ['deadlock', `do $$ begin raise deadlock_detected; end $$`],
  ['serialization', `do $$ begin raise serialization_failure; end $$`],
  ['resources', `do $$ begin raise too_many_connections; end $$`],
  ['other', `selekt`],
])('%s: %s', async (failure, text) => {
  const thrown: unknown = await database.query(text).then(
    () => undefined,
    (error: unknown) => error,
  );
  expect(failureOf(thrown)).toBe(failure);
});

it.each<[Failure, unknown]>([
  ['connection', Object.assign(new Error('connect'), { code: 'ECONNREFUSED' })],
  ['connection', Object.assign(new Error('write'), { code: 'EPIPE' })],
  ['connection', Object.assign(new Error('read'), { code: 'ECONNABORTED' })],
  ['connection', new Error('Query read timeout')],
  ['connection', new AggregateError([Object.assign(new Error('connect'), { code: 'ECONNREFUSED' })])],
  ['connection', new Error('Connection terminated unexpectedly')],
  ['connection', Object.assign(new DatabaseError('bye', 3, 'error'), { code: '57P01' })],
  ['login', Object.assign(new DatabaseError('who', 3, 'error'), { code: '28P01' })],
  ['other', new Error('mine')],
  ['other', 'text'],
  ['other', undefined],
])('%s: %o', (failure, thrown) => {
  expect(failureOf(thrown)).toBe(failure);
});
