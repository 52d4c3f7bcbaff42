import { readdir, readFile } from 'node:fs/promises';
import { extname, join } from 'node:path';

const types: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.txt': 'text/plain; charset=utf-8',
  '.woff2': 'font/woff2',
};

// Everything that the page needs comes from here, so nothing else may come.
const policy =
  "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";

interface Page {
  readonly body: Uint8Array<ArrayBuffer>;
  readonly headers: Readonly<Record<string, string>>;
}

/** The files of a folder that was built, by their paths. They are kept, so the folder may go. */
export async function readPages(folder: string): Promise<ReadonlyMap<string, Page>> {
  const names = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = names.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  const pages = files.map(async (file): Promise<[string, Page]> => {
    const path = file.slice(folder.length).replaceAll('\\', '/');
    // The names of the others change with their content.
    const isHtml = path === '/index.html';
    const headers = {
      'content-type': types[extname(file)] ?? 'application/octet-stream',
      'cache-control': isHtml ? 'no-cache' : 'public, max-age=31536000, immutable',
      'content-security-policy': policy,
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
    };
    return [isHtml ? '/' : `/dev${path}`, { body: new Uint8Array(await readFile(file)), headers }];
  });
  return new Map(await Promise.all(pages));
}
