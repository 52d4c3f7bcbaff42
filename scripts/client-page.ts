/** The page that lists the exports of `pgfresh/client` and its siblings, with their types as written. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { skeletonOf } from './code-skeleton.ts';

const folder = join(import.meta.dirname, '../client');
const modules = [
  ['pgfresh/client', 'index.ts'],
  ['pgfresh/react', 'react.ts'],
  ['pgfresh/client/heartbeat', 'heartbeat.ts'],
] as const;

export function clientPage(): string {
  const sections = modules.map(([name, file]) => {
    const exported = exportsOf(file).map(({ name: exportName, from }) => entryOf(exportName, from));
    return `## ${name}\n\n${exported.join('\n')}`;
  });
  return `# The client's interface

Written from the types by \`npm run docs\`. [showing-data.md](../guides/showing-data.md) explains how to use it.

${sections.join('\n')}`;
}

/** What a module exports, and the file that declares it. */
function exportsOf(file: string): { name: string; from: string }[] {
  const text = readFileSync(join(folder, file), 'utf8');
  const passedOn = [...text.matchAll(/^export (?:type )?\{([^}]*)\} from '\.\/([^']+)';$/gm)].flatMap(
    ([, names, from]) =>
      names!
        .split(',')
        .map((name) => name.replace('type ', '').trim())
        .filter((name) => name !== '')
        .map((name) => ({ name, from: from! })),
  );
  const own = [...text.matchAll(/^export (?:function|class|interface|type) (\w+)/gm)].map(([, name]) => ({
    name: name!,
    from: file,
  }));
  return [...passedOn, ...own];
}

function entryOf(name: string, file: string): string {
  const text = readFileSync(join(folder, file), 'utf8');
  const begin = new RegExp(`^export (function|class|interface|type) ${name}\\b`, 'm').exec(text);
  if (!begin) throw new Error(`client/${file} does not have ${name}, which is exported`);
  const about = aboutOf(text.slice(0, begin.index));
  const declared = declarationAt(text, begin.index, begin[1]!).replace(/^export /, '');
  return `### ${name}\n\n${about}\`\`\`ts\n${declared}\n\`\`\`\n`;
}

/** The comment right before a declaration, as text. */
function aboutOf(before: string): string {
  const comment = /\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\n(?:\/\/[^\n]*\n)*$/.exec(before)?.[1];
  if (comment === undefined) return '';
  return `${comment
    .split('\n')
    .map((line) => line.replace(/^\s*\* ?/, '').trim())
    .filter((line) => line !== '')
    .join('\n')}\n\n`;
}

/** A declaration as written; functions and classes without their bodies. */
function declarationAt(text: string, place: number, kind: string): string {
  const skeleton = skeletonOf(text);
  let depth = 0;
  for (let end = place; end < text.length; end++) {
    const sign = skeleton[end]!;
    // A function's body starts at the first top-level brace after its parameters.
    if (kind === 'function' && sign === '{' && depth === 0) return `${text.slice(place, end).trim()};`;
    if ('({[<'.includes(sign)) depth += 1;
    else if (')}]'.includes(sign) || (sign === '>' && skeleton[end - 1] !== '=')) depth -= 1;
    if (depth > 0) continue;
    if (kind === 'type' && sign === ';') return text.slice(place, end + 1);
    if ((kind === 'interface' || kind === 'class') && sign === '}') {
      const whole = text.slice(place, end + 1);
      return kind === 'class' ? whole.replace(/\n\n {2}constructor[\s\S]*\n {2}\}\n/, '\n') : whole;
    }
  }
  throw new Error(`the declaration "${text.slice(place, place + 40)}" has no end`);
}
