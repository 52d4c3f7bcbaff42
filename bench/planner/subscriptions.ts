import { seededRandom } from '../../test/harness/random.ts';

/** Columns of subscriptions, as they are passed to `unnest`. */
export interface Subscriptions {
  readonly users: readonly string[];
  readonly types: readonly number[];
  readonly keys: readonly string[];
}

const subscriptionsAUser = 10;

/**
 * Each user looks at ten different pairs. Types are equally popular; the key of rank n is looked at 1/n as often as
 * the first one (Zipf).
 */
export function drawSubscriptions(count: number, types: number, keys: number, seed = 1): Subscriptions {
  const random = seededRandom(seed);
  const drawRank = zipf(keys, random);
  const drawn = { users: [] as string[], types: [] as number[], keys: [] as string[] };
  for (let user = 0; drawn.users.length < count; user++) {
    const held = new Set<string>();
    while (held.size < subscriptionsAUser && drawn.users.length < count) {
      const type = Math.floor(random() * types) + 1;
      const key = keyOf(drawRank());
      if (held.has(`${type}|${key}`)) continue;
      held.add(`${type}|${key}`);
      drawn.users.push(`user-${user}`);
      drawn.types.push(type);
      drawn.keys.push(key);
    }
  }
  return drawn;
}

export function keyOf(rank: number): string {
  return `key-${rank}`;
}

function zipf(ranks: number, random: () => number): () => number {
  const upTo: number[] = [];
  let total = 0;
  for (let rank = 1; rank <= ranks; rank++) upTo.push((total += 1 / rank));
  return () => {
    const wanted = random() * total;
    let [low, high] = [0, ranks - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (upTo[middle]! > wanted) high = middle;
      else low = middle + 1;
    }
    return low + 1;
  };
}
