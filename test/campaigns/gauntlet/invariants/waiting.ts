import { allowances } from '../allowances.ts';
import type { World } from '../world.ts';
import type { Invariant } from './invariant.ts';

interface Wait {
  /** Calls of the source when the job was first seen to wait. */
  readonly calls: number;
  /** Viewed pairs of the source that waited then. */
  readonly before: number;
}

/**
 * The bound of starvation, counted in calls, so that pauses, breakers and a slow machine do not matter: of four calls one
 * goes to the viewed pair that has waited longest.
 */
export function noPairStarves(): Invariant {
  let waits = new Map<string, Wait>();
  return {
    name: 'every viewed pair has its turn',
    holds: `While a viewed pair waits, its source is called at most four times for each viewed pair that waited before it, and ${allowances.callsBeyond} times.`,
    async look(world) {
      const { rows } = await world.db.query<{ id: string; type: string; key: string; source: string }>(`
        select j.id || ' ' || j.attempt as id, r.data_type as type, j.key, s.name as source
        from pgfresh_engine.job as j
        join pgfresh.data_type_registry as r using (type_id)
        join pgfresh.sources as s on s.id = j.source_id
        join pgfresh_engine.pairs as p on p.type_id = j.type_id and p.key = j.key
        where j.state = 'r' and j.priority > 0 and p.viewers > 0 and s.rate_limit_per_minute is not null`);
      const now = new Map<string, Wait>();
      for (const { id, type, key, source } of rows) {
        const calls = callsOf(world, source);
        const before = rows.filter((other) => other.source === source).length;
        const name = `${source} ${id}`;
        const wait = waits.get(name) ?? { calls, before };
        now.set(name, wait);
        const bound = 4 * wait.before + allowances.callsBeyond;
        if (calls - wait.calls <= bound) continue;
        const { rows: said } = await world.db.query<{ reason: string | null }>(
          `select pgfresh.explain_pair($1::text, $2::text) ->> 'reason' as reason`,
          [type, key],
        );
        const reason = said[0]?.reason;
        if (reason === 'rate' || reason === 'queued')
          world.journal.violated(
            this.name,
            { source, type, key },
            `${source} was called ${calls - wait.calls} times while ${type} ${key} waited behind ${wait.before - 1} viewed pairs: ${bound} are allowed`,
          );
      }
      waits = now;
    },
  };
}

function callsOf(world: World, source: string): number {
  return world.provider.calls.filter((call) => call.source === source && call.manner !== 'redirected').length;
}
