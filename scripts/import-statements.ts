import { lineAt, skeletonOf } from './code-skeleton.ts';

export interface ImportStatement {
  readonly specifier: string;
  readonly line: number;
}

/** Every `import`, `export … from`, `import()` and `require()` of a file, with the line of what it names. */
export function importsOf(text: string): ImportStatement[] {
  const statement = /(?:\bfrom|\bimport|\b(?:import|require)\s*\()\s*(['"`])(\.+)\1/g;
  return [...skeletonOf(text).matchAll(statement)].map((match) => {
    const end = match.index + match[0].length - 1;
    const start = end - match[2]!.length;
    return { specifier: text.slice(start, end), line: lineAt(text, start) };
  });
}
