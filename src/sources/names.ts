import { lookup, Resolver } from 'node:dns/promises';
import type { LookupAddress, RecordWithTtl } from 'node:dns';
import { readFile } from 'node:fs/promises';
import { performance } from 'node:perf_hooks';
import { within } from '../lifecycle/index.ts';
import { StepFailure } from './step-failure.ts';

interface NamesOptions {
  /** The DNS servers to use; defaults to the system's. */
  readonly servers?: readonly string[];
  /** Timeout for resolving a name. */
  readonly limitMs?: number;
}

type Found = LookupAddress & { readonly ttl: number };

interface Known {
  readonly addresses: readonly LookupAddress[];
  readonly until: number;
}

const keptMs = { least: 5_000, most: 60_000 };
const mostNames = 100;
const otherKindMs = 50;
const hostsFile = '/etc/hosts';

/**
 * Resolves the host names of one source, with its own DNS resolver: system lookups share four threads among all
 * sources, and names that get no answer would block them. Only names certain to be answered use the system lookup.
 */
export class Names {
  readonly #servers: readonly string[] | undefined;
  readonly #limitMs: number;
  readonly #known = new Map<string, Known>();
  readonly #asked = new Map<string, Promise<readonly LookupAddress[]>>();

  constructor({ servers, limitMs = 5_000 }: NamesOptions = {}) {
    this.#limitMs = limitMs;
    this.#servers = servers;
  }

  /** The addresses of a host, IPv4 first. */
  async addressesOf(hostname: string): Promise<readonly LookupAddress[]> {
    const known = this.#known.get(hostname);
    if (known && known.until > performance.now()) return known.addresses;
    let asked = this.#asked.get(hostname);
    if (!asked) {
      asked = this.#ask(hostname).finally(() => this.#asked.delete(hostname));
      this.#asked.set(hostname, asked);
    }
    return asked;
  }

  async #ask(hostname: string): Promise<readonly LookupAddress[]> {
    if (await isLocal(hostname)) return lookup(hostname, { all: true });
    const found: Found[] = [];
    const resolver = this.#newResolver();
    const asking = [resolver.resolve4(hostname, { ttl: true }), resolver.resolve6(hostname, { ttl: true })].map(
      (records, place) => records.then((list) => void found.push(...list.map((one) => foundBy(one, place)))),
    );
    const all = Promise.allSettled(asking);
    const first = Promise.any(asking).catch(() => {});
    await within(this.#limitMs, first);
    // One address family is enough; wait only briefly for the other.
    const ends = await within(found.length > 0 ? otherKindMs : 0, all);
    if (found.length > 0)
      return this.#keep(
        hostname,
        found.toSorted((one, other) => one.family - other.family),
      );
    const isAnswered = ends?.every((end) => end.status === 'rejected' && isAnswer(end.reason)) ?? false;
    if (!isAnswered) throw new StepFailure('network', `no name server answered for ${hostname}`);
    // DNS does not know the name, but the system may, through a search list or another name service.
    return lookup(hostname, { all: true });
  }

  /** New each time: a resolver keeps the system's DNS servers from when it was created, and those may change. */
  #newResolver(): Resolver {
    const resolver = new Resolver({ timeout: this.#limitMs / 4, tries: 2 });
    if (this.#servers) resolver.setServers(this.#servers);
    return resolver;
  }

  #keep(hostname: string, found: readonly Found[]): readonly LookupAddress[] {
    const addresses = found.map(({ address, family }) => ({ address, family }));
    const ttlMs = Math.min(...found.map(({ ttl }) => ttl)) * 1_000;
    const kept = Math.min(Math.max(ttlMs, keptMs.least), keptMs.most);
    if (this.#known.size >= mostNames) this.#known.delete(this.#known.keys().next().value!);
    this.#known.set(hostname, { addresses, until: performance.now() + kept });
    return addresses;
  }
}

/** Whether the name belongs to this machine, so that no DNS server is asked. */
async function isLocal(hostname: string): Promise<boolean> {
  const name = hostname.toLowerCase();
  if (name === 'localhost' || name.endsWith('.localhost')) return true;
  const hosts = await readFile(hostsFile, 'utf8').catch(() => '');
  return hosts.split('\n').some((line) => line.replace(/#.*/, '').toLowerCase().split(/\s+/).slice(1).includes(name));
}

function foundBy({ address, ttl }: RecordWithTtl, place: number): Found {
  return { address, ttl, family: place === 0 ? 4 : 6 };
}

function isAnswer(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'ENOTFOUND' || code === 'ENODATA';
}
