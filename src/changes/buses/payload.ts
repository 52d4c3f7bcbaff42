import type { Change } from '../bus.ts';

// NOTIFY accepts payloads of fewer than 8000 bytes.
const maxPayloadBytes = 7_900;
const maxXids = 100;

/** Encodes changes as NOTIFY payloads that fit the size limit. */
export function encodePayloads(changes: readonly Change[]): string[] {
  const payloads: string[] = [];
  let open: string[] = [];
  let bytes = 0;
  for (const item of changes.flatMap(encodeChange)) {
    const size = Buffer.byteLength(item) + 1;
    if (open.length > 0 && bytes + size > maxPayloadBytes) {
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

/** Decodes a payload. Returns no changes if it is malformed, because any role in the database may NOTIFY. */
export function decodePayload(payload: string): Change[] {
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

/** Splits a change into as many items as its keys need. */
function encodeChange({ type, keys, xids = [] }: Change): string[] {
  // Beyond this many xids, leave them out: receivers then read again.
  const xidList = xids.length > 0 && xids.length <= maxXids ? `,[${xids.join()}]` : '';
  const item = (keyList: string): string => `[${type},${keyList}${xidList}]`;
  if (keys === undefined) return [item('null')];
  const room = maxPayloadBytes - 40 - xidList.length;
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
