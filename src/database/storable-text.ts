/** A text that PostgreSQL can keep: it has no place for a zero character or half of a surrogate pair. */
export function storableText(text: string): string {
  return text.replaceAll('\0', '\uFFFD').toWellFormed();
}

/** The same for whatever becomes jsonb, as JSON. */
export function storableJson(value: unknown): string {
  return JSON.stringify(
    JSON.parse(JSON.stringify(value), (_key, inner: unknown) => {
      if (typeof inner === 'string') return storableText(inner);
      if (typeof inner !== 'object' || inner === null || Array.isArray(inner)) return inner;
      return Object.fromEntries(Object.entries(inner).map(([key, one]) => [storableText(key), one]));
    }),
  );
}
