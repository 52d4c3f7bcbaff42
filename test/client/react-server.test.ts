import { createElement as h } from 'react';
import { renderToString } from 'react-dom/server';
import { expect, it } from 'vitest';
import { createClient } from 'pgfresh/client';
import { FreshProvider, useFresh, useFreshMany, useFreshStatus, usePresence } from 'pgfresh/react';

function Everything() {
  const { state, data } = useFresh('quote', 'AAPL');
  const many = useFreshMany('quote', ['A', 'B']).map(({ key, state: one }) => `${key} ${one}`);
  return h('p', null, [state, typeof data, ...many, usePresence('quote', 'AAPL'), useFreshStatus()].join(' '));
}

it('a server renders the first state of a page, and does not connect', () => {
  const client = createClient();
  const html = renderToString(h(FreshProvider, { client }, h(Everything)));
  expect(html).toBe('<p>loading undefined A loading B loading  idle</p>');
  expect(client.status).toBe('idle');
});

it('a component without a provider gets an error that names it', () => {
  expect(() => renderToString(h(Everything))).toThrow(/FreshProvider/);
});
