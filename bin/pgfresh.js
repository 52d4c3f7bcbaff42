#!/usr/bin/env node
// Plain and old JavaScript on purpose: it must still run where the rest can not, to say so.
import { existsSync } from 'node:fs';
import * as modules from 'node:module';
import { fileURLToPath } from 'node:url';

const [major, minor] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 18)) {
  process.stderr.write(
    `PGF_NODE_TOO_OLD pgfresh needs Node.js 22.18 or newer, and this is ${process.version}: install a newer one; in a clone of pgfresh, "npm start" brings its own.\n`,
  );
  process.exit(2);
}

// A checkout runs its sources; the published package has only what was built from them.
const source = new URL('../src/cli/main.ts', import.meta.url);
const entry = existsSync(fileURLToPath(source)) ? source : new URL('../dist/cli/main.js', import.meta.url);
// Compiled code is kept between runs, which makes every command start faster.
modules.enableCompileCache();
await import(entry.href);
