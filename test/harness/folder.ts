import { chmod, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A folder of its own that the embedded server can reach too, when root runs it as another user. */
export async function temporaryFolder(name: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), `pgfresh-${name}-`));
  await chmod(folder, 0o755);
  return folder;
}
