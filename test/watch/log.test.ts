import { expect, it } from 'vitest';
import { Events } from '../../src/events/index.ts';
import { logEvents, sentenceOf } from '../../src/watch/index.ts';

function logged(level: 'debug' | 'info' | 'warn' | 'silent', isTTY: boolean): string[] {
  const events = new Events();
  const lines: string[] = [];
  const stop = logEvents(events, level, { isTTY, write: (text: string) => lines.push(text) });
  events.emit({ type: 'process.stopping', reason: 'SIGINT' });
  events.emit({ type: 'http.listening', url: 'http://127.0.0.1:4401', wanted: 4400, port: 4401 });
  events.emit({ type: 'http.refused', status: 401, reason: 'no token', path: '/' });
  stop();
  events.emit({ type: 'process.stopped' });
  return lines;
}

it('writes JSON that keeps the event, where no person reads', () => {
  const [first, second] = logged('info', false).map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(first).toMatchObject({ type: 'process.stopping', reason: 'SIGINT', msg: 'stopping: SIGINT', level: 30 });
  expect(second).toMatchObject({ level: 40, msg: 'port 4400 is taken; listening at http://127.0.0.1:4401 instead' });
});

it('writes short lines on a terminal', () => {
  // eslint-disable-next-line no-control-regex
  const plain = logged('debug', true).map((line) => line.replace(/\u001B\[\d+m/g, ''));
  expect(plain).toHaveLength(3);
  expect(plain[0]).toMatch(/^\d\d:\d\d:\d\d info {2}stopping: SIGINT\n$/);
});

it('leaves out on a terminal what the last words of a start tell, unless details are wanted', () => {
  const lines = (level: 'info' | 'debug', isTTY: boolean): number => {
    const events = new Events();
    let count = 0;
    logEvents(events, level, { isTTY, write: () => count++ });
    events.emit({ type: 'http.listening', url: 'http://127.0.0.1:4400', wanted: 4400, port: 4400 });
    events.emit({ type: 'worker.started', worker: 1, name: 'a', types: ['quote'] });
    events.emit({ type: 'database.ready', kind: 'embedded', address: 'a', version: '18', ms: 1 });
    events.emit({ type: 'migration.applied', name: 'functions/clock', ms: 1 });
    return count;
  };
  expect([lines('info', true), lines('debug', true), lines('info', false)]).toEqual([0, 4, 3]);
});

it('tells on a terminal what no last words tell', () => {
  const text: string[] = [];
  const events = new Events();
  logEvents(events, 'info', { isTTY: true, write: (line: string) => text.push(line) });
  events.emit({ type: 'worker.started', worker: 1, name: 'a', types: [] });
  events.emit({ type: 'database.ready', kind: 'external', address: 'a', version: '18', ms: 1 });
  events.emit({ type: 'schema.migrated', migrations: 1, functions: 64, ms: 512 });
  expect(text).toEqual([
    expect.stringContaining('knows no data type yet'),
    expect.stringContaining('external PostgreSQL 18 at a'),
    expect.stringContaining('schema: 1 migration, 64 function files, 0.5 s'),
  ]);
});

it('says what failed as an error', () => {
  expect(sentenceOf({ type: 'http.failed', method: 'GET', path: '/x', problem: 'oops' })).toEqual({
    level: 'error',
    text: 'GET /x failed: oops',
  });
});

it.each([
  [1, '1 source written'],
  [2, '2 sources written'],
])('counts %i as people do', (sources, end) => {
  const { text } = sentenceOf({ type: 'registry.synced', added: 0, changed: 0, removed: 0, sources });
  expect(text).toBe(`data types as configured: 0 added, 0 changed, 0 removed; ${end}`);
});

it('keeps to its level', () => {
  expect(logged('warn', false)).toHaveLength(1);
  expect(logged('silent', false)).toHaveLength(0);
});
