import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { loadConfig, resolveConfig } from '../../src/config/index.ts';
import { reasonSentences, refusalSentences, stateSentences } from '../../src/gateway/index.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { LiveScene, tokenOf, type RunningGateway } from './live-scene.ts';
import type { LiveClient } from './live-client.ts';

const page = await readFile(new URL('../../docs/reference/protocol.md', import.meta.url), 'utf8');

/** The examples of the page, each with its heading. */
const examples = [...page.matchAll(/^## (.+)$|^```live\n([\s\S]*?)^```$/gm)].reduce<
  { title: string; lines: string[] }[]
>((found, [, heading, example], place, all) => {
  if (heading !== undefined) return found;
  const title = all.slice(0, place).findLast(([, earlier]) => earlier !== undefined)![1]!;
  return [...found, { title, lines: example!.trim().split('\n') }];
}, []);

let scene: LiveScene;
let running: RunningGateway;
beforeAll(async () => {
  scene = await LiveScene.open();
});
beforeEach(async () => {
  await scene.clear();
  running = await scene.gateway();
});

/** Replaces placeholders of the page, and remembers the values that it names for later use. */
function matching(value: unknown): unknown {
  if (value === '…' || value === 'VERSION') return expect.anything();
  if (Array.isArray(value)) return value.map(matching);
  if (typeof value !== 'object' || value === null) return value;
  const { '…': more, ...named } = value as Record<string, unknown>;
  const all = Object.fromEntries(Object.entries(named).map(([name, inner]) => [name, matching(inner)]));
  return more === undefined ? all : expect.objectContaining(all);
}

describe('docs/reference/protocol.md', () => {
  it('has an example of every message of a client', () => {
    const said = examples.flatMap(({ lines }) => lines).flatMap((line) => /^→ \{"type":"(\w+)"/.exec(line)?.[1] ?? []);
    expect(new Set(said)).toEqual(new Set(['hello', 'want', 'add', 'drop', 'refresh', 'auth', 'ping', 'wish']));
  });

  it.each(examples.map((example, place) => [place, example.title, example.lines] as const))(
    'example %i, %s',
    async (_, _title, lines) => {
      await scene.quote('AAPL', 187.2);
      let client: LiveClient = await running.connect('ada');
      let version = '';
      for (const line of lines) {
        if (line.startsWith('→ ')) {
          client.say(
            line
              .slice(2)
              .replace('VERSION', version)
              .replace('TOKEN', await tokenOf('ada')),
          );
        } else if (line.startsWith('← ')) {
          const expected = JSON.parse(line.slice(2)) as { type: string };
          let said = await client.next();
          // A change, or a note that an answer takes longer, may come in between at any time.
          while (['change', 'waiting'].includes(said.type) && expected.type !== said.type) said = await client.next();
          expect(said).toEqual(matching(expected));
          if (line.includes('VERSION')) version = said['version'] as string;
        } else if (line.startsWith('$ ')) {
          await scene.db.query(line.slice(2));
        } else if (line === 'closed, and opened again') {
          await client.close();
          client = await running.connect('ada');
        } else {
          const code = Number(/^closed with (\d+)$/.exec(line)![1]);
          expect((await client.closed).code).toBe(code);
        }
      }
      await client.close();
    },
  );
});

describe('the sentences in docs/reference/protocol.md', () => {
  it('cover every reason and state', () => {
    const { fresh: _, ...explained } = stateSentences;
    const told = [...page.matchAll(/^\| `([a-z_]+)` \| ([A-Z].*) \|$/gm)].map(([, reason, words]) => [reason, words]);
    expect(Object.fromEntries(told)).toMatchObject({ ...reasonSentences, ...explained });
  });

  it('cover every refusal', () => {
    const told = [...page.matchAll(/^\| `(PGF_\w+)` \| (\d+) \| (.*) \|$/gm)].map(([, code, status, message]) => [
      code,
      { status: Number(status), message },
    ]);
    const sent = Object.entries(refusalSentences).map(([code, { status, message }]) => [code, { status, message }]);
    expect(Object.fromEntries(told)).toEqual(Object.fromEntries(sent));
  });
});

describe('docs/guides/access.md', () => {
  it('has the actual limits', async () => {
    const text = await readFile(new URL('../../docs/guides/access.md', import.meta.url), 'utf8');
    const told = [...text.matchAll(/^- `(\w+)` \((\d+)\): /gm)].map(([, name, number]) => [name, Number(number)]);
    expect(told).toHaveLength(2);
    expect(resolveConfig({}).gateway.limits).toMatchObject(Object.fromEntries(told));
  });

  it('has valid configurations', async () => {
    const text = await readFile(new URL('../../docs/guides/access.md', import.meta.url), 'utf8');
    const shown = [...text.matchAll(/^```ts\n(\/\/ pgfresh\.config\.ts\n[\s\S]*?)^```$/gm)].map(
      ([, example]) => example!,
    );
    expect(shown).toHaveLength(3);
    const folder = await temporaryFolder('gateway-docs');
    for (const [place, example] of shown.entries()) {
      const configFile = join(folder, `${place}.config.ts`);
      await writeFile(configFile, example);
      await expect(loadConfig({ folder, configFile })).resolves.toMatchObject({ gateway: {} });
    }
  });
});
