import type { JsonSchema } from './json-schema.ts';

const texts: Readonly<Record<string, string>> = {
  date: '2000-01-31',
  time: '12:00:00',
  'date-time': '2000-01-31T12:00:00Z',
  uuid: '00000000-0000-4000-8000-000000000000',
  uri: 'https://example.com/',
  email: 'nobody@example.com',
};

/** A sample value for a schema, with every field. It may not pass validation. */
export function sampleOf(schema: JsonSchema): unknown {
  if ('const' in schema) return schema.const;
  if (schema.enum) return schema.enum[0];
  const branches = schema.anyOf ?? schema.oneOf;
  if (branches) return sampleOf(branches.find(({ type }) => type !== 'null') ?? branches[0]!);
  if (schema.allOf) return Object.assign({}, ...schema.allOf.map(sampleOf)) as unknown;
  const type = typeof schema.type === 'string' ? schema.type : schema.type?.find((one) => one !== 'null');
  if (type === 'object' || schema.properties)
    return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, field]) => [name, sampleOf(field)]));
  if (type === 'array') return (schema.prefixItems ?? [schema.items ?? {}]).map(sampleOf);
  if (type === 'string') return texts[schema.format ?? ''] ?? 'A';
  if (type === 'number' || type === 'integer') return schema.minimum ?? schema.maximum ?? 1;
  return type === 'boolean' ? true : null;
}
