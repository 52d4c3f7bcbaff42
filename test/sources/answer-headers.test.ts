import { expect, it } from 'vitest';
import { AnswerHeaders } from '../../src/sources/answer-headers.ts';

const raw = ['Content-Type', 'application/json', 'X-Note', ' one ', 'x-note', 'two', 'Date', 'today'];

it.each(['content-type', 'x-note', 'date', 'etag'])('%s is what Headers say it is', (name) => {
  const headers = new AnswerHeaders(raw);
  expect(headers.get(name)).toBe(headers.toHeaders().get(name));
});

it('are copied for each who asks for all of them', () => {
  const headers = new AnswerHeaders(raw);
  headers.toHeaders().set('date', 'yesterday');
  expect(headers.toHeaders().get('date')).toBe('today');
});
