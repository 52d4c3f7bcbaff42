import type { GatewayPair, GatewayUser, LimitSettings } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import { TokenBucket } from '../../lifecycle/index.ts';
import { networkOf } from '../http/client-address.ts';

/** What one user, or all anonymous users of one network, use now, and their rate limits. */
export class UserUsage {
  connections = 0;
  pairs = 0;
  /** Pairs that were requested and are not answered yet. */
  pendingPairs = 0;
  readonly #newPairs: TokenBucket;
  #reservations = 0;
  #released = Promise.withResolvers<void>();
  readonly refreshes: TokenBucket;
  readonly reads: TokenBucket;

  constructor(limits: LimitSettings) {
    this.#newPairs = new TokenBucket(limits.newPairsPerMinute / 60, limits.newPairsPerMinute);
    this.refreshes = new TokenBucket(limits.refreshesPerMinute / 60, limits.refreshesPerMinute);
    this.reads = new TokenBucket(limits.messagesPerSecond, limits.messagesPerSecond * 2);
  }

  get isIdle(): boolean {
    const buckets = [this.#newPairs, this.refreshes, this.reads];
    return this.connections === 0 && this.pairs === 0 && buckets.every((bucket) => bucket.isFull());
  }

  /** Reserves a new pair, if the limit allows one. */
  reserveNewPair(): boolean {
    if (!this.#newPairs.take()) return false;
    this.#reservations += 1;
    return true;
  }

  /** Ends a reservation. It is given back if the pair was not new. */
  releaseNewPair(isSpent: boolean): void {
    this.#reservations -= 1;
    if (!isSpent) this.#newPairs.putBack();
    this.#released.resolve();
    this.#released = Promise.withResolvers();
  }

  /** Takes a new pair, if the limit allows one. Returns a promise to wait for while reservations are open. */
  takeNewPair(): boolean | Promise<void> {
    if (this.#newPairs.take()) return true;
    return this.#reservations > 0 && this.#released.promise;
  }
}

/** A reserved new pair, shared by all concurrent requests for that pair. */
interface Reservation {
  readonly usage: UserUsage;
  requests: number;
  isSpent: boolean;
}

/** Limits connections, and requests for pairs that were never requested before, per user and per network. */
export class UsageLimits {
  readonly #limits: LimitSettings;
  readonly #users = new Map<string, UserUsage>();
  readonly #connectionsOfNetwork = new Map<string, number>();
  /** Pairs that were new within the last minute. */
  readonly #newPairs = new Set<string>();
  /** By the pair as the client spells it. */
  readonly #reservations = new Map<string, Reservation>();
  #connections = 0;

  constructor(limits: LimitSettings) {
    this.#limits = limits;
  }

  get connections(): number {
    return this.#connections;
  }

  /** The usage of a user. Anonymous users of one network share theirs. */
  usageOf(user: GatewayUser, address: string): UserUsage {
    const name = user.anonymous ? `address ${networkOf(address)}` : `user ${user.id}`;
    const known = this.#users.get(name);
    if (known) return known;
    const usage = new UserUsage(this.#limits);
    this.#users.set(name, usage);
    return usage;
  }

  /** Throws if the server or the network has too many connections. Called before the token is verified. */
  requireRoom(address: string): void {
    const { connections, connectionsPerAddress } = this.#limits;
    if (this.#connections >= connections) throw tooManyConnections(connections, 'this server');
    if ((this.#connectionsOfNetwork.get(networkOf(address)) ?? 0) >= connectionsPerAddress)
      throw tooManyConnections(connectionsPerAddress, 'your address');
  }

  addConnection(usage: UserUsage, user: GatewayUser, address: string): void {
    this.requireRoom(address);
    const { connectionsPerUser } = this.#limits;
    if (!user.anonymous && usage.connections >= connectionsPerUser) throw tooManyConnections(connectionsPerUser, 'you');
    const network = networkOf(address);
    this.#connections += 1;
    usage.connections += 1;
    this.#connectionsOfNetwork.set(network, (this.#connectionsOfNetwork.get(network) ?? 0) + 1);
  }

  removeConnection(usage: UserUsage, address: string): void {
    const network = networkOf(address);
    const left = this.#connectionsOfNetwork.get(network)! - 1;
    this.#connections -= 1;
    usage.connections -= 1;
    if (left > 0) this.#connectionsOfNetwork.set(network, left);
    else this.#connectionsOfNetwork.delete(network);
  }

  /** Whether the user may request a pair that was never requested. Concurrent requests for one pair count once. */
  async takeNewPair(usage: UserUsage, pair: GatewayPair): Promise<boolean> {
    const name = nameOf(pair);
    while (!this.#newPairs.has(name)) {
      const taken = usage.takeNewPair();
      if (taken === false) return false;
      if (taken === true) this.#newPairs.add(name);
      else await taken;
    }
    return true;
  }

  /** Reserves a pair that may be new; false if the user has reached the limit. Each reservation needs a release. */
  reserveNewPair(usage: UserUsage, pair: GatewayPair): boolean {
    const name = nameOf(pair);
    const open = this.#reservations.get(name);
    if (open) open.requests += 1;
    else if (usage.reserveNewPair()) this.#reservations.set(name, { usage, requests: 1, isSpent: false });
    else return false;
    return true;
  }

  /** Ends a request that had a reservation. `newPair` is the pair as the registry spells it, if it was new. */
  releaseNewPair(requested: GatewayPair, newPair?: GatewayPair): void {
    const name = nameOf(requested);
    const open = this.#reservations.get(name)!;
    if (newPair && !this.#newPairs.has(nameOf(newPair))) {
      this.#newPairs.add(nameOf(newPair));
      open.isSpent = true;
    }
    open.requests -= 1;
    if (open.requests > 0) return;
    this.#reservations.delete(name);
    open.usage.releaseNewPair(open.isSpent);
  }

  /** Forgets idle users, and the new pairs, which the database knows by now. */
  forgetIdle(): void {
    this.#newPairs.clear();
    for (const [name, usage] of this.#users) if (usage.isIdle) this.#users.delete(name);
  }
}

function nameOf({ dataType, key }: GatewayPair): string {
  return `${dataType} ${key}`;
}

function tooManyConnections(limit: number, whose: string): PgfreshError {
  return new PgfreshError('PGF_LIVE_TOO_MANY_CONNECTIONS', { limit, whose });
}
