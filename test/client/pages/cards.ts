import { createElement as h, startTransition, StrictMode, useState } from 'react';
import { createRoot, hydrateRoot } from 'react-dom/client';
import { createClient } from 'pgfresh/client';
import { FreshProvider, useFresh, useFreshMany, useFreshStatus, usePresence } from 'pgfresh/react';

interface TestWindow {
  client: typeof client;
  show: (cards: number[]) => void;
  /** The same, rendered slowly in many small steps. */
  showSlowly: (cards: number[]) => void;
  look: (keys: string[]) => void;
  /** Every moment in which cards of the same pair differed. */
  torn: string[];
  /** The state at each rendering of a card. */
  rendered: unknown[];
}

const { document, MutationObserver } = globalThis as unknown as {
  document: { querySelector(name: string): unknown; querySelectorAll(name: string): Iterable<{ textContent: string }> };
  MutationObserver: new (seen: () => void) => { observe(root: unknown, options: object): void };
};
const page = globalThis as unknown as TestWindow;
const query = new URLSearchParams((globalThis as unknown as { location: { search: string } }).location.search);
const client = createClient({ share: query.get('share') ?? undefined });
page.client = client;
page.torn = [];
page.rendered = [];

function Card({ isSlow }: { readonly isSlow: boolean }) {
  const { data, state } = useFresh('quote', 'AAPL');
  page.rendered.push(data?.['price']);
  const until = performance.now() + (isSlow ? 20 : 0);
  while (performance.now() < until);
  return h('li', { className: 'card' }, `${state} ${String(data?.['price'])}`);
}

function Many({ keys }: { readonly keys: readonly string[] }) {
  const all = useFreshMany('quote', keys);
  return h('p', { id: 'many' }, all.map(({ key, data }) => `${key} ${String(data?.['price'])}`).join(', '));
}

function Presence() {
  return h('p', { id: 'presence' }, String(usePresence('quote', 'AAPL')));
}

function App() {
  const [cards, setCards] = useState<number[]>(query.has('rendered') ? [1] : []);
  const [keys, setKeys] = useState<string[]>([]);
  const [isSlow, setSlow] = useState(false);
  page.show = (shown) => {
    setSlow(false);
    setCards(shown);
  };
  page.showSlowly = (shown) => {
    startTransition(() => {
      setSlow(true);
      setCards(shown);
    });
  };
  page.look = setKeys;
  return h(
    'main',
    null,
    h('p', { id: 'status' }, useFreshStatus()),
    h('ul', null, ...cards.map((card) => h(Card, { key: card, isSlow }))),
    cards.length > 0 ? h(Presence) : null,
    h(Many, { keys }),
  );
}

const root = document.querySelector('#root');
new MutationObserver(() => {
  const said = new Set([...document.querySelectorAll('.card')].map(({ textContent }) => textContent));
  if (said.size > 1) page.torn.push([...said].join(' | '));
}).observe(root, { childList: true, subtree: true, characterData: true });
const tree = h(StrictMode, null, h(FreshProvider, { client }, h(App)));
if (query.has('rendered')) hydrateRoot(root as never, tree);
else createRoot(root as never).render(tree);
