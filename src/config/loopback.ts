import { isIPv4 } from 'node:net';

/** Whether an address or a name means this machine only. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.'));
}
