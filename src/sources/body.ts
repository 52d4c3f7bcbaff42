import type { IncomingMessage } from 'node:http';
import { createGunzip } from 'node:zlib';
import type { Source } from '../config/index.ts';
import { StepFailure } from './step-failure.ts';

export type Limits = Pick<Source, 'maxWireBytes' | 'maxDecodedBytes' | 'maxRatio'>;

// Below this size `maxRatio` is not enforced: a few hundred bytes of spaces are not a decompression bomb.
const harmless = 65_536;

/** Length and encoding of the body, from the response head. Throws if the body must not be read. */
export function framingOf({ statusCode, headers }: IncomingMessage, limits: Limits) {
  const transfer = headers['transfer-encoding']?.trim().toLowerCase();
  if (transfer !== undefined && transfer !== 'chunked') {
    throw new StepFailure('network', 'the answer is in a transfer encoding that was not asked for');
  }
  const encoding = headers['content-encoding']?.trim().toLowerCase() ?? '';
  if (!['', 'identity', 'gzip', 'x-gzip'].includes(encoding)) {
    throw new StepFailure('network', `expected the content encoding gzip or none, got ${encoding.slice(0, 40)}`);
  }
  const length = headers['content-length'] === undefined ? undefined : Number(headers['content-length']);
  if (length !== undefined && length > limits.maxWireBytes) {
    throw new StepFailure('too_large', `the answer is ${length} bytes, and maxWireBytes is ${limits.maxWireBytes}`);
  }
  const isEmpty = statusCode === 204 || statusCode === 304;
  return { length, isGzip: encoding.includes('gzip'), isEmpty };
}

/** Collects and decompresses a body until it exceeds its limits or the returned function is called. */
export function readBody(
  message: IncomingMessage,
  isGzip: boolean,
  limits: Limits,
  done: (result: Uint8Array | StepFailure) => void,
): () => void {
  const chunks: Buffer[] = [];
  let packed = 0;
  let size = 0;
  const take = (chunk: Buffer): void => {
    size += chunk.length;
    chunks.push(chunk);
    if (size > limits.maxDecodedBytes) {
      done(new StepFailure('too_large', `the answer is unpacked more than maxDecodedBytes, ${limits.maxDecodedBytes}`));
    } else if (size > harmless && size > packed * limits.maxRatio) {
      done(
        new StepFailure('too_large', `the answer grows by unpacking to more than maxRatio, ${limits.maxRatio} times`),
      );
    }
  };
  const finish = (): void => done(joined(chunks, size));
  // A truncated body is detected on close.
  message.on('error', () => {});
  if (!isGzip) {
    const takeAsItIs = (chunk: Buffer): void => {
      packed += chunk.length;
      take(chunk);
    };
    message.on('data', takeAsItIs).on('end', finish);
    return () => message.off('data', takeAsItIs);
  }
  message.on('data', (chunk: Buffer) => (packed += chunk.length));
  const gunzip = createGunzip();
  gunzip.on('error', (error) => {
    // Some servers send an empty body labelled as gzip.
    if (packed === 0 && message.complete) finish();
    else done(new StepFailure('network', `the answer cannot be unpacked: ${error.message}`));
  });
  message.pipe(gunzip).on('data', take).on('end', finish);
  // The whole body may have arrived while most of it is still compressed.
  return () => gunzip.destroy();
}

// Copied: a small Buffer may be a slice of a larger one, which a cached answer would keep in memory.
function joined(chunks: readonly Buffer[], size: number): Uint8Array {
  const [first] = chunks;
  if (chunks.length === 1 && first!.buffer.byteLength <= 2 * size) {
    return new Uint8Array(first!.buffer, first!.byteOffset, size);
  }
  const whole = new Uint8Array(size);
  let place = 0;
  for (const chunk of chunks) {
    whole.set(chunk, place);
    place += chunk.length;
  }
  return whole;
}
