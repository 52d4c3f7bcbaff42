import { lineAt, skeletonOf } from './code-skeleton.ts';

export interface ImportStatement {
  readonly specifier: string;
  readonly line: number;
  /** `type` is `import type … from`, which leaves nothing in the compiled file. */
  readonly kind: 'type' | 'value' | 're-export';
}

/** Every `import`, `export … from`, `import()` and `require()` of a file, with the line of its specifier. */
export function importsOf(text: string): ImportStatement[] {
  const statement =
    /(?:(?:\b(import\s+type(?!\s+from\b)|export)\b[^;'"`()=]*?)?\bfrom|\bimport|\b(?:import|require)\s*\()\s*(['"`])(\.+)\2/g;
  return [...skeletonOf(text).matchAll(statement)].map((match) => {
    const end = match.index + match[0].length - 1;
    const start = end - match[3]!.length;
    return { specifier: text.slice(start, end), line: lineAt(text, start), kind: kindOf(match[1]) };
  });
}

function kindOf(opening: string | undefined): ImportStatement['kind'] {
  if (opening === undefined) return 'value';
  return opening === 'export' ? 're-export' : 'type';
}
