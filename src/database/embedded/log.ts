import type { FileHandle } from 'node:fs/promises';

const readBytes = 16_384;

/** The last errors in PostgreSQL's output, with hints; its last lines if there are none. */
export function lastWords(text: string): string {
  const lines = text.split('\n').map((line) => line.trim());
  const reasons = lines.flatMap((line) => /\b(?:FATAL|PANIC|ERROR|HINT): .*/i.exec(line)?.[0] ?? []);
  const chosen = reasons.length > 0 ? reasons : lines.filter(Boolean);
  return chosen.slice(-3).join(' / ') || 'nothing';
}

/** What was appended to the log since it had the given size. */
export async function readSince(log: FileHandle, size: number): Promise<string> {
  const end = (await log.stat()).size;
  const start = Math.max(Math.min(size, end), end - readBytes);
  const { buffer, bytesRead } = await log.read(Buffer.alloc(end - start), 0, end - start, start);
  return buffer.toString('utf8', 0, bytesRead);
}
