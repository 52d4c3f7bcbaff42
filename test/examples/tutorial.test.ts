import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, expect, it } from 'vitest';
import { temporaryFolder } from '../harness/folder.ts';
import { CliProcess, runCli } from '../harness/process.ts';

const page = await readFile('docs/start/tutorial.md', 'utf8');
const blocks = (language: string) =>
  [...page.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, 'gms'))].map(([, text]) => text!);

const folder = await temporaryFolder('tutorial');
afterAll(() => rm(folder, { recursive: true }));
const cwd = join(folder, 'weather');

const PATH = `${dirname(process.execPath)}:${process.env['PATH']}`;
const shell = (script: string, where: string) =>
  promisify(execFile)('sh', ['-ec', script], { cwd: where, env: { ...process.env, PATH } });

async function freePort(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return String(port);
}

it('docs/start/tutorial.md leads from an empty folder to a table that is kept fresh', async () => {
  const [setUp, ...commands] = blocks('sh');
  // What is installed is what is here.
  const install = 'npm install pgfresh pg zod\n';
  expect(setUp).toContain(install);
  await shell(setUp!.replace(install, `ln -s ${resolve('node_modules')} node_modules\n`), folder);

  const files = [...blocks('sql'), ...blocks('ts')].map((text) => [/^(?:--|\/\/) (\S+)\n/.exec(text)![1]!, text]);
  expect(files.map(([name]) => name)).toEqual(['schema.sql', 'provider.ts', 'pgfresh.config.ts', 'look.ts']);
  for (const [name, text] of files) await writeFile(join(cwd, name!), text!);

  const options = { cwd, env: { PGFRESH_PORT: '0', PGFRESH_LOG_LEVEL: 'silent', WEATHER_PORT: await freePort() } };
  const lines = commands.flatMap((text) => text.trim().split('\n'));
  expect(lines.shift()).toBe('npx pgfresh dev');
  const dev = new CliProcess(['dev'], options);
  const [, look] = await dev.printed(/^ {2}Look +(DATABASE_URL=\S+ node look\.ts Berlin)$/m);

  const pgfresh = (line: string) => runCli(line.replace(/^npx pgfresh /, '').split(' '), options);
  const tried = await pgfresh(lines.shift()!);
  expect(tried).toMatchObject({ code: 0, stdout: expect.stringContaining('weather Berlin: fresh.') as string });
  expect(blocks('text')).toHaveLength(1);
  expect(tried.stdout).toContain(blocks('text')[0]!);
  const refused = await pgfresh(lines.shift()!);
  expect(refused).toMatchObject({
    code: 1,
    stdout: expect.stringMatching(/weather Atlantis: sanity\. .*4000/) as string,
  });

  const { stdout } = await shell(look!, cwd);
  const seen = stdout.trim().split('\n');
  expect(seen).toHaveLength(3);
  for (const line of seen) expect(line).toMatch(/^Berlin: \{"celsius":"[\d.]+","fetched_at":".*"\}$/);

  const answers = {
    top: /^weather +/m,
    explain: /^weather Berlin: /,
    check: /can refresh weather/,
    type: /weather/,
    source: /^weather-service +ok/m,
  };
  for (const line of lines) {
    const { code, stdout: said } = await pgfresh(line);
    expect([line, code]).toEqual([line, 0]);
    expect(said).toMatch(answers[line.split(' ')[2] as keyof typeof answers]);
  }
  expect(lines).toHaveLength(5);

  dev.signal('SIGINT');
  expect(await dev.exit).toBe(0);
}, 90_000);
