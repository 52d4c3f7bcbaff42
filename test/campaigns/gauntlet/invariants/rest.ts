import type { Invariant } from './invariant.ts';

/** Looked at when all viewers have left and nothing is open. */
export const atRest: readonly Invariant[] = [
  {
    name: 'nothing is reserved at rest',
    holds: 'With no viewer and no open job, no source has bytes reserved.',
    async look(world) {
      const { rows } = await world.db.query<{ source: string; reserved: string }>(
        `select s.name as source, st.reserved from pgfresh_engine.source_state as st join pgfresh.sources as s on s.id = st.source_id
         where st.reserved <> 0 and not exists (select from pgfresh_engine.job as j where j.source_id = s.id and j.state = 'x')`,
      );
      for (const { source, reserved } of rows)
        world.journal.violated(this.name, { source }, `${source} has ${reserved} bytes reserved`);
    },
  },
  {
    name: 'nothing runs at rest',
    holds: 'A job whose pair no one wants any more is cancelled when the pair cools down.',
    async look(world) {
      const { rows } = await world.db.query<{ type: string; key: string; state: string; age: number }>(
        `select r.data_type as type, j.key, j.state, extract(epoch from pgfresh.clock() - j.created_at)::int as age
         from pgfresh_engine.job as j join pgfresh.data_type_registry as r using (type_id)`,
      );
      for (const { type, key, state, age } of rows)
        if (!world.wants.isWanted(type, key))
          world.journal.violated(this.name, { type, key }, `a job of ${type} ${key} is open (${state}), ${age} s old`);
    },
  },
];
