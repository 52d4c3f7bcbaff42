import { listings } from '../listings.ts';
import type { Document, Route } from '../answers.ts';
import type { Fault, SpoiltCall } from './fault.ts';

const dayMs = 86_400_000;
const lists = ['financial-statements', 'dividends'] as const satisfies Route[];

/** A number and a text that every answer of the route has, and the time by which its data is known. */
const fields: Readonly<Record<Route, Fields>> = {
  quote: { number: 'price', free: 'averageVolume', text: 'currency', time: 'timestamp' },
  profile: { number: 'employees', free: 'employees', text: 'companyName', time: 'updatedAt' },
  'financial-statements': { number: 'revenue', free: 'cash', text: 'periodEnd', time: 'updatedAt', list: 'statements' },
  ratios: { number: 'currentRatio', free: 'currentRatio', text: 'asOf', time: 'asOf' },
  dividends: { number: 'amount', free: 'amount', text: 'exDate', time: 'updatedAt', list: 'dividends' },
};

interface Fields {
  readonly number: string;
  /** A number on which no other depends. */
  readonly free: string;
  readonly text: string;
  readonly time: string;
  readonly list?: string;
}

/** Answers that are good HTTP and good JSON, and not true. */
export const documentFaults = {
  empty_object: { what: 'answers {}', outcome: 'schema', document: () => ({}) },
  empty_array: { what: 'answers []', outcome: 'schema', document: () => [] },
  null_document: { what: 'answers null', outcome: 'schema', document: () => null },
  in_array: { what: 'puts the answer into an array', outcome: 'schema', document: (call) => [call.honest()] },
  in_text: {
    what: 'packs the JSON into a JSON text',
    outcome: 'schema',
    document: (call) => JSON.stringify(call.honest()),
  },
  error_200: {
    what: 'tells an error with status 200',
    outcome: 'schema',
    document: () => ({ error: { code: 'limit_reached', message: 'Upgrade your plan.' } }),
  },
  renamed_field: {
    what: 'gives a field another name',
    outcome: 'schema',
    document: inRow((row, { number }) => {
      row[`${number}Value`] = row[number];
      delete row[number];
    }),
  },
  missing_field: {
    what: 'leaves a field out',
    outcome: 'schema',
    document: inRow((row, { number }) => delete row[number]),
  },
  null_field: {
    what: 'has null where a number must be',
    outcome: 'schema',
    document: inRow((row, { number }) => (row[number] = null)),
  },
  text_for_number: {
    what: 'has a text where a number must be',
    outcome: 'schema',
    document: inRow((row, { number }) => (row[number] = String(row[number]))),
  },
  number_for_text: {
    what: 'has a number where a text must be',
    outcome: 'schema',
    document: inRow((row, { text }) => (row[text] = 7)),
  },
  extra_field: { what: 'has a field more', outcome: 'schema', document: inRow((row) => (row['confidence'] = 0.9)) },
  prototype_field: {
    what: 'has a field __proto__',
    outcome: 'schema',
    document: inRow((row) => Object.defineProperty(row, '__proto__', { value: { admin: true }, enumerable: true })),
  },
  bad_time: { what: 'has "yesterday" for a time', outcome: 'schema', document: (call) => timed(call, 'yesterday') },
  other_type: {
    what: 'answers another question about the symbol',
    outcome: 'schema',
    document: (call) => call.honest({ route: call.route === 'profile' ? 'quote' : 'profile' }),
  },

  price_zero: {
    what: 'has the price 0',
    outcome: 'sanity',
    routes: ['quote'],
    document: (call) => priced(call, () => 0),
  },
  price_negative: {
    what: 'has a negative price',
    outcome: 'sanity',
    routes: ['quote'],
    document: (call) => priced(call, (price) => -price),
  },
  price_huge: {
    what: 'has the price 1e9',
    outcome: 'sanity',
    routes: ['quote'],
    document: (call) => priced(call, () => 1e9),
  },
  high_below_low: {
    what: 'swaps the highest and the lowest price',
    outcome: 'sanity',
    routes: ['quote'],
    document: (call) => {
      const { high, low, ...rest } = call.honest() as { high: number; low: number };
      return { ...rest, high: low - 0.01, low: high };
    },
  },
  negative_number: {
    what: 'has a negative number that cannot be one',
    outcome: 'sanity',
    document: inRow((row, { number }) => (row[number] = -5)),
  },
  absurd_number: {
    what: 'has a number beyond all sense',
    outcome: 'sanity',
    document: inRow((row, { number }) => (row[number] = 1e15)),
  },
  unbalanced: {
    what: 'has a balance sheet that does not add up',
    outcome: 'sanity',
    routes: ['financial-statements'],
    document: inRow((row) => (row['totalAssets'] = Number(row['totalAssets']) * 2)),
  },
  future_time: {
    what: 'says that the data is of tomorrow',
    outcome: 'sanity',
    document: (call) => timed(call, new Date(call.now + dayMs).toISOString()),
  },

  wrong_symbol: {
    what: 'answers about another symbol',
    outcome: 'wrong_key',
    document: (call) => anotherAnswer(call),
  },
  other_spelling: {
    what: 'writes the symbol in another way, with its country',
    outcome: 'wrong_key',
    document: (call) => renamed(call, `${call.symbol} US`),
  },
  row_of_another: {
    what: 'has one row of another symbol',
    outcome: 'wrong_key',
    routes: lists,
    document: inRow((row, _fields, call) => (row['symbol'] = otherThan(call.symbol))),
  },

  stale_cache: {
    what: 'answers as it did a hundred days before its last answer',
    outcome: 'older_source',
    document: (call) => call.honest({ at: call.lastAt - 100 * dayMs }),
  },
  slightly_stale: {
    what: 'answers as it did a second before its last answer',
    outcome: 'older_source',
    routes: ['quote'],
    document: (call) => call.honest({ at: call.lastAt - 1_000 }),
  },
  same_time_other_content: {
    what: 'has the time of its last answer, and other content',
    outcome: 'older_source',
    document: (call) => inRow((row, { free }) => (row[free] = Number(row[free]) + 1), call.lastAt)(call),
  },
  repeated: {
    what: 'repeats its last answer',
    outcome: 'unchanged',
    document: (call) => call.honest({ at: call.lastAt }),
  },

  no_rows: {
    what: 'has an empty list, as if all of it had gone',
    outcome: 'suspicious',
    routes: lists,
    document: (call) => ({ ...call.honest(), [fields[call.route].list!]: [] }),
  },
  lost_rows: {
    what: 'has a list that has lost all but its first row',
    outcome: 'suspicious',
    routes: lists,
    document: (call) => rowsOf(call, (rows) => rows.slice(0, 1)),
  },
  duplicate_rows: {
    what: 'has every row twice',
    outcome: 'fresh',
    routes: lists,
    document: (call) => rowsOf(call, (rows) => [...rows, ...rows]),
  },
  conflicting_rows: {
    what: 'has a row twice, with different content',
    outcome: 'schema',
    routes: lists,
    document: (call) => {
      const { free } = fields[call.route];
      return rowsOf(call, ([first, ...rest]) =>
        first ? [first, { ...first, [free]: Number(first[free]) + 1 }, ...rest] : [],
      );
    },
  },
} as const satisfies Record<string, Fault>;

/** Changes the answer, or its first row if it is a list. A list without rows stays as it is. */
function inRow(change: (row: Document, names: Fields, call: SpoiltCall) => unknown, at?: number) {
  return (call: SpoiltCall): Document => {
    const document = call.honest(at === undefined ? {} : { at });
    const names = fields[call.route];
    const row = names.list === undefined ? document : (document[names.list] as Document[])[0];
    if (row) change(row, names, call);
    return document;
  };
}

function rowsOf(call: SpoiltCall, change: (rows: readonly Document[]) => readonly Document[]): Document {
  const list = fields[call.route].list!;
  const document = call.honest();
  return { ...document, [list]: change(document[list] as Document[]) };
}

function timed(call: SpoiltCall, time: string): Document {
  return { ...call.honest(), [fields[call.route].time]: time };
}

function priced(call: SpoiltCall, change: (price: number) => number): Document {
  const document = call.honest();
  return { ...document, price: change(Number(document['price'])) };
}

function renamed(call: SpoiltCall, symbol: string): Document {
  const { list } = fields[call.route];
  const document = { ...call.honest(), symbol };
  return list === undefined
    ? document
    : { ...document, [list]: (document[list as keyof object] as Document[]).map((row) => ({ ...row, symbol })) };
}

/** About the next symbol of which there is something to say. */
function anotherAnswer(call: SpoiltCall): Document {
  const { list } = fields[call.route];
  for (let symbol = otherThan(call.symbol); ; symbol = otherThan(symbol)) {
    const document = call.honest({ symbol });
    if (list === undefined || (document[list] as Document[]).length > 0) return document;
  }
}

function otherThan(symbol: string): string {
  const symbols = [...listings.keys()];
  return symbols[(symbols.indexOf(symbol) + 1) % symbols.length]!;
}
