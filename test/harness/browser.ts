import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { inflate } from '@sparticuz/chromium';
import { chromium, type Browser } from 'playwright-core';
import { atEnd } from './database.ts';

const cache = join(import.meta.dirname, '../../node_modules/.cache');

/**
 * A real Chromium, closed when the test file ends. It comes with npm on Linux; elsewhere the installed Chrome is
 * used. PGFRESH_BROWSER overrides it.
 */
export async function openBrowser(): Promise<Browser> {
  const args = ['--no-sandbox', '--disable-gpu'];
  const named = process.env['PGFRESH_BROWSER'];
  const isPacked = process.platform === 'linux' && process.arch === 'x64' && named === undefined;
  const folder = isPacked ? await unpack() : undefined;
  const browser = await chromium.launch({
    args,
    ...(folder === undefined
      ? named === undefined
        ? { channel: 'chrome' }
        : { executablePath: named }
      : { executablePath: join(folder, 'chromium'), env: surroundingsIn(folder) }),
  });
  atEnd(() => browser.close());
  return browser;
}

/** Unpacks the bundled browser once; concurrent callers share it. */
async function unpack(): Promise<string> {
  const require = createRequire(import.meta.url);
  const packed = join(dirname(require.resolve('@sparticuz/chromium')), '../bin');
  const folder = join(cache, `chromium-${versionOf(packed)}-with-own-fonts`);
  if (existsSync(folder)) return folder;
  await mkdir(cache, { recursive: true });
  const unfinished = await mkdtemp(join(cache, 'chromium.'));
  const before = process.env['TMPDIR'];
  // It unpacks into the folder for temporary files, which another user may own.
  process.env['TMPDIR'] = unfinished;
  try {
    const parts = ['chromium.br', 'fonts.tar.br', 'al2023.tar.br', 'swiftshader.tar.br'];
    await Promise.all(parts.map((part) => inflate(join(packed, part))));
  } finally {
    if (before === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = before;
  }
  // The bundled configuration names temporary folders, which may lack fonts; text without a font has no height.
  await writeFile(join(unfinished, 'fonts/fonts.conf'), fontsConf);
  // Renamed only when complete.
  await rename(unfinished, folder).catch(() => rm(unfinished, { recursive: true }));
  return folder;
}

const fontsConf = `<?xml version="1.0" ?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir prefix="relative">fonts</dir><cachedir prefix="xdg">cache</cachedir></fontconfig>
`;

function versionOf(packed: string): string {
  const require = createRequire(import.meta.url);
  return (require(join(packed, '../package.json')) as { version: string }).version;
}

// The libraries of the package are for machines that have none of their own.
function surroundingsIn(folder: string): Record<string, string> {
  const own = process.env['LD_LIBRARY_PATH'];
  const libraries = [...(own === undefined ? [] : [own]), join(folder, 'al2023/lib')].join(':');
  return {
    ...(process.env as Record<string, string>),
    LD_LIBRARY_PATH: libraries,
    FONTCONFIG_PATH: join(folder, 'fonts'),
    XDG_CACHE_HOME: folder,
  };
}
