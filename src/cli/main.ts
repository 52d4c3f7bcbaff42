import { runCommandLine } from './command-line.ts';
import { endProcess, surviveClosedOutput } from './standard-streams.ts';

surviveClosedOutput();
process.exitCode = await runCommandLine(process.argv.slice(2));
// What a configuration or a handler has left open, a timer or a socket, must not keep the process.
await endProcess();
