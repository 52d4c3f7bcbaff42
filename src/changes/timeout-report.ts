import type { Queryable } from '../database/index.ts';

interface TypeTimeout {
  /** The data type, by its number or its name. */
  readonly type?: number;
  readonly dataType?: string;
  readonly where: string;
  readonly problem: string;
}

const report = {
  name: 'pgfresh.note_type_timeout',
  text: `select pgfresh_engine.note_type_timeout(type_id, 'gateway ' || $3::text, $4::text)
    from pgfresh.data_type_registry where type_id = $1::int or data_type = $2::text`,
};

/** Records a data type's timeout in the database, which may quarantine it. If this fails, the next timeout is recorded. */
export async function reportTimeout(db: Queryable, { type, dataType, where, problem }: TypeTimeout): Promise<void> {
  await db.query(report, [type ?? null, dataType ?? null, where, problem]).catch(() => {});
}
