// PostgreSQL has no place for a zero character or half of a surrogate pair. Every value that goes to it passes here, and
// what is bad becomes U+FFFD: what could not be stored would be fetched, and paid for, again and again.

/** A text that PostgreSQL can store. */
export function storableText(text: string): string {
  return text.includes('\0') ? text.replaceAll('\0', '\uFFFD').toWellFormed() : text.toWellFormed();
}

// JSON.stringify writes both as escapes, which only the server would stumble over.
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
 * An array of numbers and texts as PostgreSQL reads it, or nothing for an array of others. pg writes the same, with two
 * regular expressions for each element: with arrays of 500, a third of what a worker needs to send a statement.
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

/** What pg makes a text of: arrays within it stay arrays. */
function storableArray(values: readonly unknown[]): unknown[] {
  return values.map((value) => (Array.isArray(value) ? storableArray(value) : storableValue(value)));
}

function escaped(text: string): string {
  return text.includes('"') || text.includes('\\') ? text.replaceAll(/["\\]/g, '\\$&') : text;
}

/** A parameter of a statement as it can be sent: a text, an array of them, or an object that becomes JSON. */
export function storableValue(value: unknown): unknown {
  if (typeof value === 'string') return storableText(value);
  if (Array.isArray(value)) return arrayText(value) ?? storableArray(value);
  const isPlain = typeof value === 'object' && value !== null && !(value instanceof Date) && !ArrayBuffer.isView(value);
  return isPlain ? storableJson(value) : value;
}
