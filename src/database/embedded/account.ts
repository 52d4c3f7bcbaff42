import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { promisify } from 'node:util';
import { PgfreshError } from '../../errors/index.ts';

const run = promisify(execFile);

/** The account that runs the server when we are root, which PostgreSQL refuses. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
}

/** `undefined` means our own account. */
export async function serverAccount(cluster: string): Promise<Account | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  // A cluster that a normal user created stays that user's.
  const owner = await stat(cluster).catch(() => undefined);
  if (owner !== undefined && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid };
  return findAccount(['postgres', 'nobody']);
}

export async function findAccount(names: readonly string[]): Promise<Account> {
  for (const name of names) {
    const ids = await Promise.all([run('id', ['-u', name]), run('id', ['-g', name])]).catch(() => undefined);
    if (ids === undefined) continue;
    const [uid, gid] = ids.map(({ stdout }) => Number(stdout)) as [number, number];
    if (uid !== 0) return { uid, gid };
  }
  throw new PgfreshError('PGF_EMBEDDED_NO_USER', {});
}

/** Whether the account can traverse the folder. We ask the kernel, because it knows groups and ACLs. */
export async function canEnter(folder: string, account: Account | undefined): Promise<boolean> {
  const ask = run('/bin/sh', ['-c', 'test -x "$1"', 'sh', folder], spawnOptions(account));
  return ask.then(
    () => true,
    () => false,
  );
}

/**
 * The minimal environment of server processes: the user's PG* variables would change their behaviour, and our secrets
 * are not for them. Messages are in English because we search the log for them.
 */
export function spawnOptions(account: Account | undefined) {
  const env = { PATH: process.env['PATH'] ?? '', LC_ALL: 'C', TZ: 'UTC' };
  // The account may not be able to enter the current folder.
  return { cwd: '/', env, ...account };
}
