import type { IncomingMessage } from 'node:http';
import { createGunzip } from 'node:zlib';
import type { Source } from '../config/index.ts';
import { StepFailure } from './step-failure.ts';

export type Limits = Pick<Source, 'maxWireBytes' | 'maxDecodedBytes' | 'maxRatio'>;

// So little may grow as it likes: a few hundred bytes of spaces are no bomb.
const harmless = 65_536;

/** What the head of an answer says about its body, or why it is not read at all. */
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

/** Gathers a body, unpacked, until it is larger than it may be or the returned function is called. */
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
  // That it was cut is seen when it closes.
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
    // Nothing at all is what some send for nothing at all.
    if (packed === 0 && message.complete) finish();
    else done(new StepFailure('network', `the answer cannot be unpacked: ${error.message}`));
  });
  message.pipe(gunzip).on('data', take).on('end', finish);
  // All of it may have come, and most of it may still be packed.
  return () => gunzip.destroy();
}

// An array of its own: a small Buffer may be part of a larger one, which a kept answer would keep alive.
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
