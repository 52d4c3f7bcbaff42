import { isIPv6 } from 'node:net';
import type { GatewayPair, GatewayUser, LimitSettings } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import { Bucket } from '../../lifecycle/index.ts';

/** What one user, or one address of people without names, has now and may still have. */
export class Account {
  connections = 0;
  pairs = 0;
  /** Pairs that are wanted and not answered yet. */
  wishes = 0;
  readonly #newPairs: Bucket;
  /** Rights to a new pair that are put aside. */
  #reserved = 0;
  #settled = Promise.withResolvers<void>();
  readonly refreshes: Bucket;
  readonly reads: Bucket;

  constructor(limits: LimitSettings) {
    this.#newPairs = new Bucket(limits.newPairsPerMinute / 60, limits.newPairsPerMinute);
    this.refreshes = new Bucket(limits.refreshesPerMinute / 60, limits.refreshesPerMinute);
    this.reads = new Bucket(limits.messagesPerSecond, limits.messagesPerSecond * 2);
  }

  get isIdle(): boolean {
    const buckets = [this.#newPairs, this.refreshes, this.reads];
    return this.connections === 0 && this.pairs === 0 && buckets.every((bucket) => bucket.isFull());
  }

  /** Puts the right to a new pair aside, if there is one left. */
  reserve(): boolean {
    if (!this.#newPairs.take()) return false;
    this.#reserved += 1;
    return true;
  }

  /** Ends a reservation: the pair was new, or it was not. */
  settle(isSpent: boolean): void {
    this.#reserved -= 1;
    if (!isSpent) this.#newPairs.give();
    this.#settled.resolve();
    this.#settled = Promise.withResolvers();
  }

  /** Whether he may have one more new pair, which is taken then; a promise while that is not known yet. */
  takeNew(): boolean | Promise<void> {
    if (this.#newPairs.take()) return true;
    return this.#reserved > 0 && this.#settled.promise;
  }
}

/** The right to a new pair, put aside for all who ask for the pair in the same moment. */
interface Reservation {
  readonly account: Account;
  wishes: number;
  isSpent: boolean;
}

/** Counts connections and what they ask for, by user and by address. */
export class Tally {
  readonly #limits: LimitSettings;
  readonly #accounts = new Map<string, Account>();
  readonly #addresses = new Map<string, number>();
  /** Pairs that were new a moment ago. */
  readonly #new = new Set<string>();
  /** By the names that clients give to pairs. */
  readonly #reserved = new Map<string, Reservation>();
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
  async mayAskFor(account: Account, pair: GatewayPair): Promise<boolean> {
    const name = nameOf(pair);
    while (!this.#new.has(name)) {
      const taken = account.takeNew();
      if (taken === false) return false;
      if (taken === true) this.#new.add(name);
      else await taken;
    }
    return true;
  }

  /** Puts aside what it takes to ask for a pair that may be new; nothing if there is not enough. It must be released. */
  reserve(account: Account, pair: GatewayPair): boolean {
    const name = nameOf(pair);
    const open = this.#reserved.get(name);
    if (open) open.wishes += 1;
    else if (account.reserve()) this.#reserved.set(name, { account, wishes: 1, isSpent: false });
    else return false;
    return true;
  }

  /** Ends a wish for which something was put aside. With a pair as its data type writes it, that one was new. */
  release(asked: GatewayPair, isNew?: GatewayPair): void {
    const name = nameOf(asked);
    const open = this.#reserved.get(name)!;
    if (isNew && !this.#new.has(nameOf(isNew))) {
      this.#new.add(nameOf(isNew));
      open.isSpent = true;
    }
    open.wishes -= 1;
    if (open.wishes > 0) return;
    this.#reserved.delete(name);
    open.account.settle(open.isSpent);
  }

  /** Forgets those who have nothing and may have everything again, and what was new; the database knows it by now. */
  forgetIdle(): void {
    this.#new.clear();
    for (const [name, account] of this.#accounts) if (account.isIdle) this.#accounts.delete(name);
  }
}

function nameOf({ dataType, key }: GatewayPair): string {
  return `${dataType} ${key}`;
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
