import { z } from 'zod';
import { expectation, hintFor, invalid, shown } from './invalid.ts';

/** An object with these options and no others; the near miss of one that is mistyped is named. */
export function options<Shape extends z.core.$ZodLooseShape>(shape: Shape) {
  const known = Object.keys(shape);
  return z.strictObject(shape, {
    error: ({ code, keys }) =>
      code === 'unrecognized_keys'
        ? `there is no such option; ${hintFor(keys[0]!, known)}`
        : `expected an object with ${known.join(', ')}`,
  });
}

/** The name of a source or of a data type. */
export const definedName = z
  .string()
  .regex(
    /^[a-z][a-z0-9_-]{0,62}$/,
    'expected a name of lower-case letters, digits, _ and -, at most 63, that begins with a letter',
  );

/** The name of a column. */
export const identifier = z
  .string()
  .regex(/^[A-Za-z_]\w{0,62}$/, 'expected a name of letters, digits and underscores, at most 63');

/** The name of a table or a function, in the schema public unless it says otherwise. */
export const qualifiedName = z
  .string()
  .regex(
    /^([A-Za-z_]\w{0,62}\.)?[A-Za-z_]\w{0,62}$/,
    'expected a name of letters, digits and underscores, with its schema and a dot before it if that is not public',
  );

/** Reads one definition, or says where in which file what is wrong. */
export function readDefinition<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
  { file, path, secret = [] }: { file: string; path: string; secret?: readonly string[] },
): z.output<Schema> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const { issues } = result.error;
  // A mistyped option is often the reason why another one is missing.
  const issue = issues.find(({ code }) => code === 'unrecognized_keys') ?? issues[0]!;
  const unknown = issue.code === 'unrecognized_keys' ? issue.keys.slice(0, 1) : [];
  const steps = [...issue.path, ...unknown].map((step) =>
    typeof step === 'number' ? `[${step}]` : `.${String(step)}`,
  );
  const isSecret = secret.includes(String(issue.path[0]));
  const came = isSecret ? 'a value that is not shown' : shown(valueAt(value, issue.path));
  const got = unknown.length > 0 ? '' : `, got ${came}`;
  throw invalid(file, `${path}${steps.join('')}${named(value)}`, `${expectation(issue)}${got}`, nextOf(path));
}

/** Sections of the reference, by the part of the configuration. */
const sections = { sources: 'sources', dataTypes: 'data-types', jobs: 'jobs', gateway: 'gateway' } as const;

/** Definitions are not settings, so the hint leads to the section that lists their options. */
function nextOf(path: string): string | undefined {
  const section = Object.entries(sections).find(([part]) => path.startsWith(part))?.[1];
  return section && `Correct the option; docs/reference/configuration.md#${section} lists them all.`;
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>((inner, step) => (inner as Record<PropertyKey, unknown> | undefined)?.[step], value);
}

/** The number in a list says little to a reader; the name does. */
function named(value: unknown): string {
  const name = typeof value === 'object' && value !== null && 'name' in value ? value.name : undefined;
  return typeof name === 'string' ? ` ("${name}")` : '';
}
