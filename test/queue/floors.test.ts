import { describe, expect, it, test } from 'vitest';
import { ClaimFloors } from '../../src/queue/floors.ts';
import { seededRandom } from '../harness/random.ts';

const job = (id: number, lane = 0, type = 1) => ({ id, lane, type });

describe('the rules', () => {
  let now = 0;
  const fresh = () => new ClaimFloors(() => now);
  /** One claim that takes `cost` ms and brings `jobs`. */
  const claim = (floors: ClaimFloors, jobs: ReturnType<typeof job>[], cost = 0) => {
    const used = floors.next();
    now += cost;
    return { used, again: floors.learn(jobs) };
  };

  test('as long as it is cheap, every claim looks at everything', () => {
    const floors = fresh();
    expect(claim(floors, [job(7), job(3)], 3)).toEqual({ used: [], again: false });
    expect(claim(floors, [job(8)], 3)).toEqual({ used: [], again: false });
  });

  test('where it is not, the next claims begin behind what was claimed, for twenty times as long as it took', () => {
    const floors = fresh();
    claim(floors, [job(7), job(3)], 100);
    expect(claim(floors, [job(8), job(9)]).used).toEqual([{ type: 1, lane: 0, id: 8 }]);
    now += 1_999;
    expect(claim(floors, [job(10)]).used).toEqual([{ type: 1, lane: 0, id: 10 }]);
    now += 1;
    expect(claim(floors, [job(11)]).used).toEqual([]);
  });

  test('a floor is kept for each data type and lane, and goes down only where everything was looked at', () => {
    const floors = fresh();
    claim(floors, [job(7), job(20, 3), job(9, 0, 2), job(5)], 100);
    expect(floors.next()).toEqual([
      { type: 1, lane: 0, id: 8 },
      { type: 1, lane: 3, id: 21 },
      { type: 2, lane: 0, id: 10 },
    ]);
    floors.learn([job(4), job(30, 3)]);
    expect(floors.next().map(({ id }) => id)).toEqual([8, 31, 10]);
    now += 2_000;
    claim(floors, [job(5), job(6)], 100);
    expect(floors.next().toSorted((a, b) => a.id - b.id)).toEqual([
      { type: 1, lane: 0, id: 7 },
      { type: 2, lane: 0, id: 10 },
      { type: 1, lane: 3, id: 31 },
    ]);
  });

  test('one that brought nothing is repeated from the beginning as soon as that may be', () => {
    const floors = fresh();
    claim(floors, [job(1)], 100);
    expect(claim(floors, []).again).toBe(false);
    const used = floors.next();
    expect(used).toEqual([{ type: 1, lane: 0, id: 2 }]);
    now += 2_000;
    expect(floors.learn([])).toBe(true);
    expect(claim(floors, [], 500)).toEqual({ used: [], again: false });
  });
});

/** A ready index as claimers see it: entries appear when their transaction commits, which need not be in the order of ids. */
class SimulatedIndex {
  readonly #ready = new Map<number, ReturnType<typeof job> & { visibleAt: number }>();

  get size(): number {
    return this.#ready.size;
  }

  add(entry: ReturnType<typeof job>, visibleAt: number): void {
    this.#ready.set(entry.id, { ...entry, visibleAt });
  }

  take(floors: readonly ReturnType<typeof job>[], limit: number, now: number) {
    const taken = [...this.#ready.values()]
      .filter((entry) => entry.visibleAt <= now)
      .filter(({ type, lane, id }) => !floors.some((f) => f.type === type && f.lane === lane && id < f.id))
      .toSorted((a, b) => a.lane - b.lane || a.id - b.id)
      .slice(0, limit);
    for (const { id } of taken) this.#ready.delete(id);
    return taken;
  }
}

interface Course {
  /** The longest that a job was ready before it was claimed although every claim had room for it. */
  longestWait: number;
  claimed: number;
  /** Claims that looked at everything. */
  full: number;
  claims: number;
}

/**
 * Claimers that take turns at random moments. Jobs arrive at about half of what they could take; every tenth commits
 * up to `lateness` ms after later ones.
 */
function simulate(seed: number, { jobs, lateness, cost }: { jobs: number; lateness: number; cost: number }): Course {
  const random = seededRandom(seed);
  let now = 0;
  const places = [1, 2].flatMap((type) => [47, 52, 53].map((lane) => ({ type, lane })));
  const index = new SimulatedIndex();
  const claimers = Array.from({ length: 3 }, () => new ClaimFloors(() => now));
  const course: Course = { longestWait: 0, claimed: 0, full: 0, claims: 0 };
  const once = (floors: ClaimFloors, limit: number): boolean => {
    const from = floors.next();
    const taken = index.take(from, limit, now);
    now += from.length === 0 ? cost : 0.2;
    course.claims++;
    if (from.length === 0) course.full++;
    for (const { visibleAt } of taken) {
      course.claimed++;
      course.longestWait = Math.max(course.longestWait, now - visibleAt);
    }
    return floors.learn(taken);
  };
  for (let id = 1; id <= jobs || index.size > 0;) {
    const arriving = id > jobs ? 0 : Math.floor(random() * 6);
    for (let added = 0; added < arriving; added++, id++) {
      const late = random() < 0.1 ? random() * lateness : 0;
      index.add({ id, ...places[Math.floor(random() * places.length)]! }, now + late);
    }
    const floors = claimers[Math.floor(random() * claimers.length)]!;
    const limit = 1 + Math.floor(random() * 10);
    if (once(floors, limit)) once(floors, limit);
    now += random() * 4;
    if (now > 1e7) throw new Error(`${index.size} jobs are never claimed`);
  }
  return course;
}

describe('with late commits, several lanes and several claimers', () => {
  it.each(Array.from({ length: 20 }, (_, seed) => seed + 1))(
    'every job is claimed, late ones within the pause (seed %i)',
    (seed) => {
      const course = simulate(seed, { jobs: 2_000, lateness: 500, cost: 1 });
      expect(course.claimed).toBeGreaterThanOrEqual(2_000);
      // Two seconds while claims are full, and then the turn of the one whose pause is over.
      expect(course.longestWait).toBeLessThan(2_100);
    },
  );

  it('looks that are dear take a small share of the time and still find every job', () => {
    const course = simulate(99, { jobs: 2_000, lateness: 500, cost: 100 });
    expect(course.claimed).toBeGreaterThanOrEqual(2_000);
    expect(course.longestWait).toBeLessThan(3 * 100 * 21);
    expect(course.full).toBeLessThan(course.claims / 20);
  });
});
