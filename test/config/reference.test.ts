import { describe, expect, it } from 'vitest';
import { dataTypeDocs, gatewayDocs, jobDocs, sourceDocs } from '../../scripts/configuration-page.ts';
import { columnsByOption, type OptionDoc } from '../../scripts/option-docs.ts';
import { dataTypeSchema } from '../../src/config/data-type.ts';
import { durationText } from '../../src/config/duration.ts';
import { readGateway } from '../../src/config/gateway.ts';
import { jobSchema } from '../../src/config/job.ts';
import { sourceSchema } from '../../src/config/source.ts';
import { sourceColumns, typeColumns } from '../../src/registry/columns.ts';

const required = { name: 'quote', source: 'market', table: 'quote', key: 'symbol', timestamp: 'fetched_at', ttl: '1m' };
/** What these tests have to set. */
const set = new Set([...Object.keys(required), 'function', 'schedule', 'rls.role']);
const gateway = readGateway({ jwt: { secret: { env: 'SECRET' } }, rls: { role: 'authenticated' } }, 'a test');

describe('docs/reference/configuration.md', () => {
  it.each<[string, readonly OptionDoc[], object, readonly string[]]>([
    ['data type', dataTypeDocs, dataTypeSchema.parse(required), Object.keys(dataTypeSchema.shape)],
    ['source', sourceDocs, sourceSchema.parse({ name: 'market' }), Object.keys(sourceSchema.shape)],
    [
      'job',
      jobDocs,
      jobSchema.parse({ name: 'tidy', function: 'tidy', schedule: '@daily' }),
      Object.keys(jobSchema.shape),
    ],
    ['gateway', gatewayDocs, gateway, ['authorize', 'anonymous', ...Object.keys(gateway)]],
  ])('has every option of a %s, with the default that it has', (_, docs, defaults, names) => {
    expect(new Set(docs.map(({ name }) => name.split('.', 1)[0]))).toEqual(new Set(names));
    const wrong = docs.flatMap(({ name, type, fallback }) => {
      const value = valueAt(defaults, name);
      const expected = set.has(name) ? undefined : shown(value, type);
      return expected === undefined || fallback?.replaceAll('`', '') === expected ? [] : [[name, fallback, expected]];
    });
    expect(wrong).toEqual([]);
  });

  it('has every column of data types and sources', () => {
    const columnsOf = (kind: 'type' | 'source'): string[] => [...columnsByOption(kind).values()].flat().toSorted();
    const told = (columns: object): string[] =>
      Object.keys(columns).filter((name) => !['refresh_strategy', 'managed_by'].includes(name));
    expect(columnsOf('type')).toEqual(told(typeColumns).toSorted());
    expect(columnsOf('source')).toEqual(told(sourceColumns).toSorted());
  });
});

function valueAt(from: unknown, path: string): unknown {
  return path.split('.').reduce((value, step) => (value as Record<string, unknown> | undefined)?.[step], from);
}

/** A default as the page writes it; undefined where there is none that could be written. */
function shown(value: unknown, type: string): string | undefined {
  if (Array.isArray(value)) return value.length === 0 ? undefined : value.join(', ');
  if (typeof value === 'object' && value !== null) return 'mode' in value ? String(value.mode) : undefined;
  if (typeof value === 'number' && type.includes('Duration')) return durationText(value);
  if (typeof value === 'number' && type.includes('Bytes')) return sizeOf(value);
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'
    ? String(value)
    : undefined;
}

function sizeOf(bytes: number): string {
  if (bytes === 0) return '0';
  return bytes % 1e6 === 0 ? `${bytes / 1e6}MB` : `${bytes / 1e3}KB`;
}
