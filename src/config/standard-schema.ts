/** What pgfresh needs of a schema of any library that follows standardschema.dev. */
export interface RowSchema<Input = unknown, Output = unknown> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** What goes into a schema. */
export type InputOf<Schema extends RowSchema> = NonNullable<Schema['~standard']['types']>['input'];
/** What comes out of it. */
export type OutputOf<Schema extends RowSchema> = NonNullable<Schema['~standard']['types']>['output'];

export function isRowSchema(value: unknown): value is RowSchema {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return false;
  const standard = '~standard' in value ? value['~standard'] : undefined;
  return typeof standard === 'object' && standard !== null && 'vendor' in standard && 'validate' in standard;
}

/** A value as the schema lets it through, or what is wrong with it, in one sentence that says where. */
export async function validated<Output>(
  schema: RowSchema<unknown, Output>,
  value: unknown,
): Promise<{ value: Output } | { problem: string }> {
  const result = await schema['~standard'].validate(value);
  if (!result.issues) return { value: result.value };
  const [first, ...others] = result.issues;
  const steps = (first?.path ?? []).map((step) => String(typeof step === 'object' ? step.key : step));
  const more = others.length > 0 ? ` (and ${others.length} more)` : '';
  return { problem: `${steps.length > 0 ? `${steps.join('.')}: ` : ''}${first?.message ?? 'refused'}${more}` };
}
