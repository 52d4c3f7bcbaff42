import type { Change } from '../bus.ts';

// PostgreSQL takes fewer than 8000 bytes.
const largest = 7_900;
const mostXids = 100;

/** Changes as texts that are short enough to be sent. */
export function payloadsOf(changes: readonly Change[]): string[] {
  const payloads: string[] = [];
  let open: string[] = [];
  let bytes = 0;
  for (const item of changes.flatMap(itemsOf)) {
    const size = Buffer.byteLength(item) + 1;
    if (open.length > 0 && bytes + size > largest) {
      payloads.push(`[${open.join()}]`);
      open = [];
      bytes = 0;
    }
    open.push(item);
    bytes += size;
  }
  if (open.length > 0) payloads.push(`[${open.join()}]`);
  return payloads;
}

/** The changes of a payload; none if it is not one of ours, because everybody in the database may notify. */
export function changesOf(payload: string): Change[] {
  let items: unknown;
  try {
    items = JSON.parse(payload);
  } catch {
    return [];
  }
  if (!Array.isArray(items)) return [];
  return items.flatMap((item: unknown) => {
    if (!Array.isArray(item)) return [];
    const [type, keys, xids] = item as unknown[];
    const isKeys = keys === null || (Array.isArray(keys) && keys.every((key) => typeof key === 'string'));
    const isXids = xids === undefined || (Array.isArray(xids) && xids.every(Number.isSafeInteger));
    if (!Number.isInteger(type) || !isKeys || !isXids) return [];
    return [{ type: type as number, keys: keys ?? undefined, xids: xids as number[] | undefined }];
  });
}

/** A change in as many pieces as it needs. */
function itemsOf({ type, keys, xids = [] }: Change): string[] {
  // Of very many it is shorter not to know them.
  const by = xids.length > 0 && xids.length <= mostXids ? `,[${xids.join()}]` : '';
  const item = (list: string): string => `[${type},${list}${by}]`;
  if (keys === undefined) return [item('null')];
  const room = largest - 40 - by.length;
  const items: string[] = [];
  let open: string[] = [];
  let bytes = 0;
  for (const key of keys) {
    const text = JSON.stringify(key);
    const size = Buffer.byteLength(text) + 1;
    if (open.length > 0 && bytes + size > room) {
      items.push(item(`[${open.join()}]`));
      open = [];
      bytes = 0;
    }
    open.push(text);
    bytes += size;
  }
  if (open.length > 0) items.push(item(`[${open.join()}]`));
  return items;
}
