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
 * The code of a file without text: comments are blank, strings keep their quotes around dots.
 * It is as long as the text, so that positions match.
 */
export function skeletonOf(text: string): string {
  return text.replace(passages, (found) => {
    const inside = found.startsWith('/') ? ' ' : '.';
    const filled = found.replace(/[^\n]/g, inside);
    return inside === '.' ? found[0] + filled.slice(1, -1) + found[0] : filled;
  });
}

/** The line number of a position. */
export function lineAt(text: string, place: number): number {
  return text.slice(0, place).split('\n').length;
}
