import { readOptions, usage, type CommandOptions } from './options.ts';
import { Provider } from './provider.ts';

const options = read();
if (options) {
  const provider = new Provider(options);
  const stop = async (): Promise<void> => {
    process.stdin.destroy();
    await provider.stop();
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void stop());
  if (options.attached) process.stdin.resume().once('close', () => void stop());
  const url = await provider.start();
  console.log(
    JSON.stringify({ url, pid: process.pid, seed: options.seed, keys: options.keys, limit: options.limit ?? null }),
  );
}

function read(): CommandOptions | undefined {
  try {
    return readOptions(process.argv.slice(2));
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`);
    process.exitCode = 2;
    return undefined;
  }
}
