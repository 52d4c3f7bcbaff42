import { readFileSync } from 'node:fs';

/** A fenced code block of a docs page. */
export interface DocBlock {
  readonly page: string;
  /** Line of its opening fence. */
  readonly line: number;
  readonly language: string;
  readonly text: string;
  /** The file that its first line names, as in `// pgfresh.config.ts`. */
  readonly file: string | undefined;
  /** The comment before it: `tested` names the test that covers it, `not run` says why none does. */
  readonly excuse: { readonly kind: 'tested' | 'not run'; readonly text: string } | undefined;
}

const fenced = /(?:^<!-- (tested|not run): (.+) -->\n)?^```(\S*)\n([\s\S]*?)^```$/gm;

export function blocksOf(page: string, text: string = readFileSync(page, 'utf8')): DocBlock[] {
  return [...text.matchAll(fenced)].map(([match, kind, reason, language, code], index, all) => ({
    page,
    line: text.slice(0, all[index]!.index + match.indexOf('```')).split('\n').length,
    language: language!,
    text: code!,
    file: /^(?:\/\/|--) (\S+\.\w+)\n/.exec(code!)?.[1],
    excuse: kind === undefined ? undefined : { kind: kind as 'tested' | 'not run', text: reason! },
  }));
}
