/** What a viewer says, and how much he is told before he has what he wants: welcome, answer, snapshot. */
export const hello = JSON.stringify({ type: 'hello', protocol: 1 });
export const messagesToSnapshot = 3;

export function want(key: string): string {
  return JSON.stringify({ type: 'want', pairs: [['quote', key]] });
}
