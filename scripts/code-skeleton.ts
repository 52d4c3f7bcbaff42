const passage = [
  /\/\*[\s\S]*?\*\//, // block comment
  /\/\/[^\n]*/, // line comment
  /(?<=(?:^|[=(,:;!&|?{}[+\n]|\breturn)[ \t]*)\/(?:[^\\/\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\//, // regular expression
  /`(?:[^`\\]|\\[\s\S])*`/, // template
  /'(?:[^'\\\n]|\\.)*'/,
  /"(?:[^"\\\n]|\\.)*"/,
];
const passages = new RegExp(passage.map((part) => part.source).join('|'), 'g');

/**
 * The code of a file without its words: comments are blank, strings keep their quotes around dots.
 * It is as long as the text, so that a place in one is the same place in the other.
 */
export function skeletonOf(text: string): string {
  return text.replace(passages, (found) => {
    const inside = found.startsWith('/') ? ' ' : '.';
    const filled = found.replace(/[^\n]/g, inside);
    return inside === '.' ? found[0] + filled.slice(1, -1) + found[0] : filled;
  });
}

/** The number of the line on which a place of the text lies. */
export function lineAt(text: string, place: number): number {
  return text.slice(0, place).split('\n').length;
}
