import { everything } from './definitions.ts';

// For the command line, which reads it once per test file.
export default everything(process.env['EVERYTHING_PROVIDER']!, process.env['EVERYTHING_VIEWER']!);
