import { isIPv6 } from 'node:net';
import type { GatewayPair, GatewayUser, LimitSettings } from '../config/index.ts';
import { PgfreshError } from '../errors/index.ts';
import { Bucket } from './bucket.ts';

/** What one user, or one address of people without names, has now and may still have. */
export class Account {
  connections = 0;
  pairs = 0;
  /** Pairs that are wanted and not answered yet. */
  wishes = 0;
  readonly newPairs: Bucket;
  readonly refreshes: Bucket;
  readonly reads: Bucket;

  constructor(limits: LimitSettings) {
    this.newPairs = new Bucket(limits.newPairsPerMinute / 60, limits.newPairsPerMinute);
    this.refreshes = new Bucket(limits.refreshesPerMinute / 60, limits.refreshesPerMinute);
    this.reads = new Bucket(limits.messagesPerSecond, limits.messagesPerSecond * 2);
  }

  get isIdle(): boolean {
    const buckets = [this.newPairs, this.refreshes, this.reads];
    return this.connections === 0 && this.pairs === 0 && buckets.every((bucket) => bucket.isFull());
  }
}

/** Counts connections and what they ask for, by user and by address. */
export class Tally {
  readonly #limits: LimitSettings;
  readonly #accounts = new Map<string, Account>();
  readonly #addresses = new Map<string, number>();
  /** Pairs that were new a moment ago. */
  readonly #new = new Set<string>();
  #connections = 0;

  constructor(limits: LimitSettings) {
    this.#limits = limits;
  }

  get connections(): number {
    return this.#connections;
  }

  /** The account of a user. People without names share that of their address. */
  account(user: GatewayUser, address: string): Account {
    const name = user.anonymous ? `address ${networkOf(address)}` : `user ${user.id}`;
    const known = this.#accounts.get(name);
    if (known) return known;
    const account = new Account(this.#limits);
    this.#accounts.set(name, account);
    return account;
  }

  /** Refuses an address that has too many connections, before it is asked who comes. */
  requireRoom(address: string): void {
    const { connections, connectionsPerAddress } = this.#limits;
    if (this.#connections >= connections) throw tooMany(connections, 'this server');
    if ((this.#addresses.get(networkOf(address)) ?? 0) >= connectionsPerAddress)
      throw tooMany(connectionsPerAddress, 'your address');
  }

  enter(account: Account, user: GatewayUser, address: string): void {
    this.requireRoom(address);
    const { connectionsPerUser } = this.#limits;
    if (!user.anonymous && account.connections >= connectionsPerUser) throw tooMany(connectionsPerUser, 'you');
    const network = networkOf(address);
    this.#connections += 1;
    account.connections += 1;
    this.#addresses.set(network, (this.#addresses.get(network) ?? 0) + 1);
  }

  leave(account: Account, address: string): void {
    const network = networkOf(address);
    const left = this.#addresses.get(network)! - 1;
    this.#connections -= 1;
    account.connections -= 1;
    if (left > 0) this.#addresses.set(network, left);
    else this.#addresses.delete(network);
  }

  /** Whether he may ask for a pair that nobody has asked for. What many ask for in the same moment is new once. */
  mayAskFor(account: Account, { dataType, key }: GatewayPair): boolean {
    const name = `${dataType} ${key}`;
    if (this.#new.has(name)) return true;
    if (!account.newPairs.take()) return false;
    this.#new.add(name);
    return true;
  }

  /** Forgets those who have nothing and may have everything again, and what was new; the database knows it by now. */
  forgetIdle(): void {
    this.#new.clear();
    for (const [name, account] of this.#accounts) if (account.isIdle) this.#accounts.delete(name);
  }
}

// Whoever has one address of IPv6 has 2^64 of them.
function networkOf(address: string): string {
  if (!isIPv6(address) || address.startsWith('::ffff:')) return address;
  const [head = '', tail] = address.split('::');
  const groups = head === '' ? [] : head.split(':');
  const missing = tail === undefined ? 0 : 8 - groups.length - (tail === '' ? 0 : tail.split(':').length);
  return [...groups, ...Array.from({ length: missing }, () => '0')].slice(0, 4).join(':');
}

function tooMany(limit: number, whose: string): PgfreshError {
  return new PgfreshError('PGF_LIVE_TOO_MANY_CONNECTIONS', { limit, whose });
}
