/** Options of the configuration, as the JSDoc of their interface describes them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const folder = join(import.meta.dirname, '../src');

export interface OptionDoc {
  /** Including its parent option: `breaker.failures`. */
  readonly name: string;
  readonly about: string;
  /** The default. */
  readonly fallback: string | undefined;
  /** The beginning of its type. */
  readonly type: string;
}

/** The options of an interface in `src/config`; options of a nested interface follow it, with its name as prefix. */
export function optionDocs(file: string, name: string, parts: Readonly<Record<string, string>> = {}): OptionDoc[] {
  const text = readFileSync(join(folder, 'config', file), 'utf8');
  const body = new RegExp(`^export interface ${name}\\b[\\s\\S]*?^}`, 'm').exec(text)?.[0];
  if (body === undefined) throw new Error(`src/config/${file} has no interface ${name}`);
  let outer = '';
  return [...body.matchAll(/^( +)(?:\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\n +)?readonly (\w+)\??:(.*)/gm)].flatMap(
    ([, indent, comment, option, type]) => {
      const isInner = indent!.length > 2;
      if (!isInner) outer = option!;
      const path = isInner ? `${outer}.${option!}` : option!;
      if (comment === undefined) throw new Error(`${path} of ${name} in src/config/${file} has no comment`);
      const part = parts[option!];
      const inner = part === undefined ? [] : optionDocs(file, part);
      return [
        { name: path, type: type!, ...described(comment) },
        ...inner.map((one) => ({ ...one, name: `${path}.${one.name}` })),
      ];
    },
  );
}

function described(comment: string): Pick<OptionDoc, 'about' | 'fallback'> {
  const lines = comment.split('\n').map((line) => line.replace(/^\s*\* ?/, '').trim());
  const [about, fallback] = lines
    .filter((line) => line !== '')
    .join(' ')
    .split(/ Default: (?=[^:]*\.$)/);
  return { about: about!, fallback: fallback?.replace(/\.$/, '') };
}

/** The columns in which an option is stored, as `src/registry/row.ts` writes them. */
export function columnsByOption(kind: 'type' | 'source'): ReadonlyMap<string, readonly string[]> {
  const text = readFileSync(join(folder, 'registry/row.ts'), 'utf8');
  const pairs = [
    ...text.matchAll(/(\w+): (?:Math\.max\(1, )?(type|source|schedule|keys|priority)(\??\.[\w?.]+)/g),
  ].flatMap(([, column, from, path]) => {
    if ((from === 'source') !== (kind === 'source')) return [];
    const steps = path!.replaceAll('?', '').replace('.length', '').slice(1);
    return [[from === kind ? steps : from!, column!] as const];
  });
  return new Map(
    [...Map.groupBy(pairs, ([option]) => option)].map(([option, found]) => [option, found.map(([, column]) => column)]),
  );
}
