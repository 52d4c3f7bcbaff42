import { runCommandLine } from './command-line.ts';
import { endProcessSoon, surviveClosedOutput } from './standard-streams.ts';

surviveClosedOutput();
process.exitCode = await runCommandLine(process.argv.slice(2));
// What a configuration has left open, a timer or a pool, must not keep the process.
endProcessSoon();
