/** A viewer's messages, and how many it receives before it has the row: welcome, answer, snapshot. */
export const hello = JSON.stringify({ type: 'hello', protocol: 1 });
export const messagesToSnapshot = 3;

export function want(key: string): string {
  return said('want', key);
}

/** The same for one more pair: answer, snapshot. */
export const messagesToNext = 2;

export function add(key: string): string {
  return said('add', key);
}

export function drop(key: string): string {
  return said('drop', key);
}

function said(type: string, key: string): string {
  return JSON.stringify({ type, pairs: [['quote', key]] });
}
