import type { Queryable } from '../database/index.ts';

interface TypeTimeout {
  /** By its number or its name. */
  readonly type?: number;
  readonly dataType?: string;
  readonly where: string;
  readonly problem: string;
}

const note = {
  name: 'pgfresh.note_type_timeout',
  text: `select pgfresh_engine.note_type_timeout(type_id, 'gateway ' || $3::text, $4::text)
    from pgfresh.data_type_registry where type_id = $1::int or data_type = $2::text`,
};

/** Says that a data type has kept a gateway waiting, for the quarantine. If this fails, the next timeout says it. */
export async function noteTimeout(db: Queryable, { type, dataType, where, problem }: TypeTimeout): Promise<void> {
  await db.query(note, [type ?? null, dataType ?? null, where, problem]).catch(() => {});
}
