import { vi } from 'vitest';
import { runCommandLine } from '../../src/cli/command-line.ts';

export interface CommandEnd {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CommandOptions {
  /** Its working folder; default: that of the tests. */
  readonly cwd?: string;
  /** Its environment; none of the tests' own variables. */
  readonly env?: Readonly<Record<string, string>>;
}

/**
 * Runs a command in this process, one at a time: like a separate process without its start and its signals, at a
 * tenth of the cost. A configuration is read once, so another one needs another folder.
 */
export async function runCommand(args: readonly string[], options: CommandOptions = {}): Promise<CommandEnd> {
  const { cwd = process.cwd(), env = {} } = options;
  const written = { stdout: '', stderr: '' };
  const catching = (['stdout', 'stderr'] as const).map((name) =>
    vi.spyOn(process[name], 'write').mockImplementation((chunk) => ((written[name] += String(chunk)), true)),
  );
  const before = { cwd: process.cwd(), env: { ...process.env }, exitCode: process.exitCode };
  for (const name of Object.keys(process.env))
    if (/^(PGFRESH_|DATABASE_URL|NO_COLOR|FORCE_COLOR)/.test(name)) delete process.env[name];
  Object.assign(process.env, env);
  process.chdir(cwd);
  process.exitCode = undefined;
  try {
    return { code: await runCommandLine(args), ...written };
  } finally {
    process.exitCode = before.exitCode;
    process.chdir(before.cwd);
    for (const name of Object.keys(process.env)) if (!(name in before.env)) delete process.env[name];
    Object.assign(process.env, before.env);
    for (const spy of catching) spy.mockRestore();
  }
}
