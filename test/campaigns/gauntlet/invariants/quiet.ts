import { readdir, readFile } from 'node:fs/promises';
import { allowances } from '../allowances.ts';
import { bystander, comparedKey, place, sources, types, wide } from '../cast.ts';
import type { Page } from '../viewers.ts';
import type { World } from '../world.ts';
import { Persistence, type Invariant } from './invariant.ts';
import { explain, viewedRows } from './viewed-rows.ts';

/** Looked at while the system is quiet and viewed. */
export function whenQuiet(): Invariant[] {
  const late = new Persistence();
  const differs = new Persistence();
  return [
    {
      name: 'every call is booked',
      holds: 'The ledger of each source has all calls that the provider has counted and that have had time to end.',
      async look(world) {
        const { rows } = await world.db.query<{ source: string; calls: string }>(
          'select source, sum(calls) as calls from pgfresh.api_data_usage group by source',
        );
        const ledger = new Map(rows.map(({ source, calls }) => [source, Number(calls)]));
        const until = Date.now() - allowances.booking;
        for (const source of Object.keys(sources)) {
          const from = world.ledgerFrom.get(source) ?? 0;
          const made = world.provider.calls.filter(
            (call) => call.source === source && call.at > from && call.at < until,
          );
          // A job that was lost or cancelled counts as one call, also if it was redirected; around a deletion it is unknown.
          const unsure = made.filter(
            ({ at, manner }) =>
              (manner === 'redirected' && world.losses.some((loss) => Math.abs(at - loss) < allowances.lostWorker)) ||
              at - from < allowances.booking,
          );
          const booked = ledger.get(source) ?? 0;
          if (made.length - unsure.length > booked)
            world.journal.violated(
              this.name,
              { source },
              `the provider has counted ${made.length} calls of ${source}, the ledger has ${booked}`,
            );
        }
      },
    },
    {
      name: 'every viewed pair is fresh',
      holds: 'After the quiet period the row of each viewed pair is no older than its TTL and 5 s.',
      async look(world) {
        const found: { name: string; type: string; key: string }[] = [];
        for (const { type, key, row, ttl } of await viewedRows(world)) {
          const age = row && row.age;
          const allowed = isFull(world, type) ? allowances.lateBehindOthers : allowances.late;
          if (age !== undefined && age <= ttl + (allowed + world.lag) / 1000) continue;
          found.push({ name: `${type} ${key}`, type, key });
        }
        const seen = late.seen(
          found.map(({ name }) => name),
          4_000,
        );
        for (const { type, key } of found.filter(({ name }) => seen.includes(name)))
          world.journal.violated(this.name, { type, key }, `${type} ${key}: ${await explain(world, type, key)}`);
      },
    },
    {
      name: 'what is shown agrees with the row',
      holds: 'explain_pair, read_pairs and every page say fresh of a row that is fresh, and of no other.',
      async look(world) {
        const found: { name: string; type: string; key: string; words: string }[] = [];
        for (const { type, key, row, ttl, state, read } of await viewedRows(world)) {
          const pages = world.pages.filter(({ status }) => status === 'live').filter((page) => sees(page, type, key));
          const shown = {
            explain_pair: state,
            read_pairs: read,
            ...Object.fromEntries(pages.map((page) => [`page ${page.name}`, page.peek(type, key).state])),
          };
          for (const [where, said] of Object.entries(shown)) {
            const isWrong =
              row === undefined
                ? said === 'fresh' || said === 'stale'
                : row.age < ttl - 2
                  ? said !== 'fresh'
                  : row.age > ttl + 2 && said === 'fresh' && row.confirmed > ttl;
            if (isWrong)
              found.push({
                name: `${where} ${type} ${key}`,
                type,
                key,
                words: `${where} says ${said} of ${type} ${key}, whose row is ${row ? `${row.age.toFixed(1)} s old` : 'missing'} (TTL ${ttl} s)`,
              });
          }
        }
        const seen = differs.seen(
          found.map(({ name }) => name),
          3_000,
        );
        for (const { type, key, words } of found.filter(({ name }) => seen.includes(name)))
          world.journal.violated(this.name, { type, key }, words);
      },
    },
    {
      name: 'the last message equals the row',
      holds: 'What was in the table 5 s ago, or something newer, is on every page.',
      async look(world) {
        const rows = (await viewedRows(world)).filter(({ row }) => row !== undefined);
        await new Promise((resolve) => setTimeout(resolve, allowances.push + world.lag));
        for (const page of world.pages) {
          // One that looks at nothing closes its connection.
          if (page.looks.length === 0) continue;
          if (page.status !== 'live') {
            world.journal.violated('pages are connected', {}, `page ${page.name} is ${page.status}`);
            continue;
          }
          for (const { type, key, row } of rows) {
            if (!sees(page, type, key)) continue;
            const { data, state, error } = page.peek(type, key);
            if (data === undefined || data.value < row!.value)
              world.journal.violated(
                this.name,
                { type, key },
                `page ${page.name} has ${data?.value ?? `nothing (${state}${error ? ` ${error.code}` : ''})`} of ${type} ${key}, the row had ${row!.value} before`,
              );
          }
        }
      },
    },
    {
      name: 'rows have only served values',
      holds: 'Every value in a table was served for that pair, in an answer that may be written.',
      async look(world) {
        for (const table of [...types.map(({ name }) => name), 'news_moved', wide.name, place.name, bystander.name]) {
          const { rows } = await world.db.query<{ key: string; value: string }>(
            `select ${table === place.name ? `area || '|' || spot` : 'key'} as key, value from public.${table}`,
          );
          for (const { key, value } of rows)
            if (!world.provider.isServed(table, key, Number(value)))
              world.journal.violated(
                this.name,
                { type: table, key },
                `${table} ${key} has ${value}, which was not served for it`,
              );
        }
      },
    },
    {
      name: 'every key of a schedule has its turn',
      holds: 'After the quiet period no row of a data type with a schedule of a minute is older than that and a fetch.',
      async look(world) {
        const { rows } = await world.db.query<{ key: string; age: number | null }>(
          `select k.key, extract(epoch from pgfresh.clock() - p.fetched_at)::float8 * 1000 as age
           from public.places as k left join public.place as p on k.key = p.area || '|' || p.spot`,
        );
        for (const { key, age } of rows)
          if (age === null || age > 60_000 + allowances.turn + world.lag)
            world.journal.violated(
              this.name,
              { type: place.name, key },
              `the row of place ${key} is ${age === null ? 'missing' : `${Math.round(age / 1000)} s old`}`,
            );
      },
    },
    {
      name: 'no job fails by its configuration',
      holds: 'A worker claims only what it can fetch: no job ends with the outcome config.',
      async look(world) {
        const { rows } = await world.db.query<{ type: string; key: string; error: string }>(
          `select data_type as type, key, error_message as error from pgfresh.failed_jobs where outcome = 'config' limit 5`,
        );
        for (const { type, key, error } of rows)
          world.journal.violated(this.name, { type }, `${type} ${key}: ${error}`);
      },
    },
    {
      name: 'every code is explained',
      holds: 'Each error and warning code in a log is in the documents.',
      async look(world) {
        const docs = await readDocs();
        for (const [code, text] of world.codes)
          if (!docs.includes(code))
            world.journal.violated(this.name, {}, `${code} is in no document: ${text.slice(0, 200)}`);
      },
    },
  ];
}

const sees = (page: Page, type: string, key: string): boolean =>
  page.looks.some((look) => look.type === type && comparedKey(type, look.key) === comparedKey(type, key));

/**
 * Whether jobs that were queued by hand have just used nearly all calls of the one source that has so few. Calls that
 * were taken and not made, such as those of a job that was put back, keep their place for 90 s.
 */
function isFull(world: World, type: string): boolean {
  if (type !== 'detour') return false;
  const since = Date.now() - 90_000;
  const made = world.provider.calls.filter(({ source, at }) => source === 'detour' && at > since);
  return made.length >= sources.detour.rate - 2;
}

let docs: string | undefined;
async function readDocs(): Promise<string> {
  const folder = new URL('../../../../docs/', import.meta.url);
  const files = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith('.md'));
  docs ??= (await Promise.all(files.map((name) => readFile(new URL(name, folder), 'utf8')))).join('\n');
  return docs;
}
