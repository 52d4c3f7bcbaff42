/**
 * Checks the project's imports against the table of rooms.
 *
 *   node scripts/rooms.ts [root]
 *
 * Prints one line per violation and exits with 1 if there is any.
 */
import { globSync, readFileSync } from 'node:fs';
import { dirname, join, posix, sep } from 'node:path';
import { lineAt, skeletonOf } from './code-skeleton.ts';
import { importsOf, type ImportStatement } from './import-statements.ts';
import { rooms } from './rooms-table.ts';

interface SourceFile {
  /** From the root, with forward slashes. */
  readonly path: string;
  readonly text: string;
}

const publicApi = 'src/index.ts';
/** The types that clients and the gateway share, imported as `#protocol`. */
const protocol = 'client/protocol.ts';

export function findViolations(root: string): string[] {
  return [
    ...foldersWithoutRow(root),
    ...filesOf(root, 'src').flatMap(violationsInSource),
    ...violationsOfInnerDoors(filesOf(root, 'src')),
    ...filesOf(root, 'examples').flatMap(violationsInExample),
    ...['client', 'dashboard'].flatMap((folder) => filesOf(root, folder)).flatMap(violationsInBrowserCode),
  ];
}

function foldersWithoutRow(root: string): string[] {
  return globSync('src/*', { cwd: root, withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !Object.hasOwn(rooms, entry.name))
    .map((entry) => `src/${entry.name}: is not in the table of rooms; it knows ${list(Object.keys(rooms))}`);
}

function violationsInSource(file: SourceFile): string[] {
  if (file.path === publicApi) return violationsInPublicApi(file);
  const room = roomOf(file.path);
  if (room === undefined) return [`${file.path}:1 is in no room; only ${publicApi} lies beside them`];
  const row = rooms[room];
  if (row === undefined) return []; // Its folder has been reported.
  return violations(file, (target, kind) => {
    if (target === undefined) return undefined;
    if (target === protocol)
      return room === 'gateway' && kind === 'type' ? undefined : 'only gateway imports the protocol, as types';
    const entered = roomOf(target);
    if (entered === room) return undefined;
    const isType = entered === 'config' && kind === 'type';
    const allowed = `${room} may import ${list(row.mayImport)}`;
    if (entered === undefined || !(isType || row.mayImport.includes(entered))) return allowed;
    if (target !== doorOf(entered)) return `${entered} is entered through ${doorOf(entered)} only`;
    return kind === 're-export' ? `a room does not re-export what ${entered} owns` : undefined;
  });
}

/** A folder in a room may have an `index.ts` too, through which the rest of the room imports it. */
function violationsOfInnerDoors(files: readonly SourceFile[]): string[] {
  const inner = files.filter(({ path }) => /^src\/[^/]+\/.+\/index\.ts$/.test(path)).map(({ path }) => dirname(path));
  return files.flatMap((file) =>
    violations(file, (target) => {
      if (target === undefined || roomOf(target) !== roomOf(file.path)) return undefined;
      const entered = inner.find((folder) => target.startsWith(`${folder}/`) && !file.path.startsWith(`${folder}/`));
      if (entered === undefined || target === `${entered}/index.ts`) return undefined;
      return `${entered} is entered through its index.ts only`;
    }),
  );
}

function violationsInPublicApi(file: SourceFile): string[] {
  const reExport = /export\s+(?:type\s+)?(?:\{[^}]*\}|\*(?:\s+as\s+\w+)?)\s+from\s*(['"])\.+\1\s*;?/g;
  const rest = skeletonOf(file.text).replace(reExport, (statement) => statement.replace(/[^\n]/g, ' '));
  const place = rest.search(/\S/);
  const code =
    place < 0 ? [] : [`${file.path}:${lineAt(file.text, place)} has code of its own; it only re-exports from rooms`];
  const imports = violations(file, (target) => {
    const room = target === undefined ? undefined : roomOf(target);
    const atDoor = room !== undefined && Object.hasOwn(rooms, room) && target === doorOf(room);
    return atDoor ? undefined : 'the public API re-exports from the index.ts of rooms only';
  });
  return [...code, ...imports];
}

function violationsInExample(file: SourceFile): string[] {
  const own = file.path.split('/').slice(0, 2).join('/');
  return violations(file, (target) => {
    if (target === undefined || target === publicApi || target.startsWith(`${own}/`)) return undefined;
    return `examples may import their own folder and the public API, ${publicApi}`;
  });
}

function violationsInBrowserCode(file: SourceFile): string[] {
  return violations(file, (target) => {
    const folder = file.path.split('/', 1)[0]!;
    return target?.split('/', 1)[0] === 'src' ? `${folder} may import nothing of src` : undefined;
  });
}

/** One line for each import that `objection` rejects; packages other than pgfresh have no target. */
function violations(
  file: SourceFile,
  objection: (target: string | undefined, kind: ImportStatement['kind']) => string | undefined,
): string[] {
  return importsOf(file.text).flatMap((statement) => {
    const rule = objection(targetOf(file, statement), statement.kind);
    return rule === undefined ? [] : [`${file.path}:${statement.line} imports ${statement.specifier}; ${rule}`];
  });
}

function targetOf(file: SourceFile, { specifier }: ImportStatement): string | undefined {
  if (specifier === 'pgfresh') return publicApi;
  if (specifier === '#protocol') return protocol;
  return specifier.startsWith('.') ? posix.join(posix.dirname(file.path), specifier) : undefined;
}

function roomOf(path: string): string | undefined {
  const [top, room, ...rest] = path.split('/');
  return top === 'src' && rest.length > 0 ? room : undefined;
}

function doorOf(room: string): string {
  return `src/${room}/index.ts`;
}

function list(names: readonly string[]): string {
  return names.length === 0 ? 'no other room' : names.join(', ');
}

function filesOf(root: string, folder: string): SourceFile[] {
  const exclude = ['**/node_modules/**', '**/dist/**'];
  return globSync(`${folder}/**/*.{ts,tsx,mts,cts,js,jsx,mjs,cjs}`, { cwd: root, exclude })
    .map((path) => ({ path: path.split(sep).join('/'), text: readFileSync(join(root, path), 'utf8') }))
    .toSorted((a, b) => (a.path < b.path ? -1 : 1));
}

if (import.meta.main) {
  const found = findViolations(process.argv[2] ?? dirname(import.meta.dirname));
  for (const line of found) console.log(line);
  process.exitCode = found.length === 0 ? 0 : 1;
}
