/** What pgfresh needs of a schema of any library that follows standardschema.dev. */
export interface RowSchema {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => unknown;
  };
}

export function isRowSchema(value: unknown): value is RowSchema {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return false;
  const standard = '~standard' in value ? value['~standard'] : undefined;
  return typeof standard === 'object' && standard !== null && 'vendor' in standard && 'validate' in standard;
}
