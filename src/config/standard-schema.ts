import { isPromiseLike } from './promise-like.ts';

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

type Validated<Output> = { readonly value: Output } | { readonly problem: string };

/**
 * A value as the schema lets it through, or what is wrong with it, in one sentence that says where. A promise only if the
 * schema needs one.
 */
export function validated<Output>(
  schema: RowSchema<unknown, Output>,
  value: unknown,
): Validated<Output> | Promise<Validated<Output>> {
  const result = schema['~standard'].validate(value);
  return isPromiseLike(result) ? Promise.resolve(result).then(verdictOf) : verdictOf(result);
}

function verdictOf<Output>(result: SchemaResult<Output>): Validated<Output> {
  if (!result.issues) return { value: result.value };
  const [first, ...others] = result.issues;
  const steps = (first?.path ?? []).map((step) => String(typeof step === 'object' ? step.key : step));
  const more = others.length > 0 ? ` (and ${others.length} more)` : '';
  return { problem: `${steps.length > 0 ? `${steps.join('.')}: ` : ''}${first?.message ?? 'refused'}${more}` };
}
