import { vi } from 'vitest';
import { runCommandLine } from '../../src/cli/command-line.ts';

export interface CommandEnd {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command in this process, one at a time: all that a process of its own does but its start and its signals. */
export async function runCommand(args: readonly string[], env: Readonly<Record<string, string>>): Promise<CommandEnd> {
  const written = { stdout: '', stderr: '' };
  const catching = (['stdout', 'stderr'] as const).map((name) =>
    vi.spyOn(process[name], 'write').mockImplementation((chunk) => ((written[name] += String(chunk)), true)),
  );
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
  const before = process.exitCode;
  process.exitCode = undefined;
  try {
    return { code: await runCommandLine(args), ...written };
  } finally {
    process.exitCode = before;
    vi.unstubAllEnvs();
    for (const spy of catching) spy.mockRestore();
  }
}
