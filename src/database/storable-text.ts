// PostgreSQL cannot store a zero character or half of a surrogate pair. Every value for it passes here, and bad
// characters become U+FFFD: an answer that cannot be stored would be fetched, and paid for, again and again.

/** A text that PostgreSQL can store. */
export function storableText(text: string): string {
  return text.includes('\0') ? text.replaceAll('\0', '\uFFFD').toWellFormed() : text.toWellFormed();
}

// JSON.stringify writes both as escapes, which fail only on the server.
const unstorable = /\\u(?:0000|d[89a-f])/;

/** A value as JSON that PostgreSQL can store, as json and as jsonb. */
export function storableJson(value: unknown): string {
  const text = JSON.stringify(value);
  if (!unstorable.test(text)) return text;
  return JSON.stringify(
    JSON.parse(text, (_key, inner: unknown) => {
      if (typeof inner === 'string') return storableText(inner);
      if (typeof inner !== 'object' || inner === null || Array.isArray(inner)) return inner;
      return Object.fromEntries(Object.entries(inner).map(([key, one]) => [storableText(key), one]));
    }),
  );
}

/**
 * An array of numbers and texts in PostgreSQL's syntax; undefined for other arrays. pg writes the same, with two
 * regular expressions per element: with arrays of 500, a third of a worker's time to send a statement.
 */
function arrayText(values: readonly unknown[]): string | undefined {
  let text = '';
  for (let place = 0; place < values.length; place++) {
    const value = values[place];
    if (place > 0) text += ',';
    if (typeof value === 'number') text += value;
    else if (typeof value === 'string') text += `"${escaped(storableText(value))}"`;
    else if (value === null || value === undefined) text += 'NULL';
    else return undefined;
  }
  return `{${text}}`;
}

/** Values that pg turns into text; nested arrays stay arrays. */
function storableArray(values: readonly unknown[]): unknown[] {
  return values.map((value) => (Array.isArray(value) ? storableArray(value) : storableValue(value)));
}

function escaped(text: string): string {
  return text.includes('"') || text.includes('\\') ? text.replaceAll(/["\\]/g, '\\$&') : text;
}

/** A statement's parameter in a form that can be sent: text, an array of them, or an object as JSON. */
export function storableValue(value: unknown): unknown {
  if (typeof value === 'string') return storableText(value);
  if (Array.isArray(value)) return arrayText(value) ?? storableArray(value);
  const isPlain = typeof value === 'object' && value !== null && !(value instanceof Date) && !ArrayBuffer.isView(value);
  return isPlain ? storableJson(value) : value;
}
