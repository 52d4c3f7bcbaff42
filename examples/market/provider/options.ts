import { parseArgs } from 'node:util';
import type { ProviderOptions } from './provider.ts';

export const usage = `node examples/market/provider/main.ts [options]
  --port <number>      0 means any that is free (4010)
  --seed <number>      same seed, same prices (1)
  --keys <list>        the keys that it knows, with commas (demo-1,demo-2,demo-3)
  --limit <number>     calls in any minute and key (300)
  --no-limit           any number of calls
  --latency <ms>       the median of how long an answer takes (8)
  --attached           stops when its standard input ends, as it does when whoever started it dies`;

export interface CommandOptions extends ProviderOptions {
  readonly attached: boolean;
}

/** Reads the command line, or throws an error that says what was expected. */
export function readOptions(args: readonly string[]): CommandOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      port: { type: 'string', default: '4010' },
      seed: { type: 'string', default: '1' },
      keys: { type: 'string', default: 'demo-1,demo-2,demo-3' },
      limit: { type: 'string', default: '300' },
      'no-limit': { type: 'boolean', default: false },
      latency: { type: 'string', default: '8' },
      attached: { type: 'boolean', default: false },
    },
  });
  const keys = values.keys.split(',').filter(Boolean);
  if (keys.length === 0) throw new Error('--keys: expected at least one key');
  return {
    port: whole('port', values.port, 0, 65_535),
    seed: whole('seed', values.seed, 0, 2 ** 32 - 1),
    keys,
    limit: values['no-limit'] ? undefined : whole('limit', values.limit, 1, 1_000_000),
    latencyMs: whole('latency', values.latency, 0, 5_000),
    attached: values.attached,
  };
}

function whole(name: string, text: string, lowest: number, highest: number): number {
  const number = Number(text);
  if (text.trim() !== '' && Number.isInteger(number) && number >= lowest && number <= highest) return number;
  throw new Error(`--${name}: expected a whole number from ${lowest} to ${highest}, got "${text}"`);
}
