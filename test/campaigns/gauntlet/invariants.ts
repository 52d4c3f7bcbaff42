import { readdir, readFile } from 'node:fs/promises';
import { allowances } from './allowances.ts';
import { bystander, comparedKey, sources, types } from './cast.ts';
import type { Call } from './provider.ts';
import type { World } from './world.ts';

/** Something that must hold. It is looked at again and again, and notes in the journal what does not. */
export interface Invariant {
  readonly name: string;
  /** What it checks, in a sentence. */
  readonly holds: string;
  readonly look: (world: World) => Promise<void> | void;
}

/** For what may be seen for a moment: it counts when it persists. */
class Persistence {
  readonly #since = new Map<string, number>();

  /** Those of the names that have been seen for long, without a break. */
  seen(names: readonly string[], forMs: number = allowances.persists): string[] {
    const now = Date.now();
    for (const name of this.#since.keys()) if (!names.includes(name)) this.#since.delete(name);
    for (const name of names) if (!this.#since.has(name)) this.#since.set(name, now);
    return names.filter((name) => now - this.#since.get(name)! >= forMs);
  }
}

interface LimitChange {
  readonly at: number;
  readonly source: string;
  readonly rate: number | null;
  readonly concurrency: number | null;
}

/** The highest limit that was in force within a time; Infinity if there was none for a moment. */
function highest(
  changes: readonly LimitChange[],
  kind: 'rate' | 'concurrency',
  { source, from, to }: { source: string; from: number; to: number },
): number {
  const own = changes.filter((change) => change.source === source && change.at <= to);
  const before = own.findLast(({ at }) => at <= from);
  const inForce = own.filter(({ at }) => at > from);
  return Math.max(...[...(before ? [before] : []), ...inForce].map((change) => change[kind] ?? Infinity));
}

/** Calls are judged when all changes that came before them are known. */
const judgedAfterMs = 2_500;

export function continuous(): Invariant[] {
  let judged = 0;
  const orphans = new Persistence();
  const strays = new Persistence();
  const leaks = new Persistence();
  const attempts = new Persistence();
  return [
    {
      name: 'calls stay within limits',
      holds:
        'In any 60 s each API key of a source is called at most as often as the highest limit in force allows; so are jobs at once.',
      async look(world) {
        const { calls } = world.provider;
        const { rows: changes } = await world.db.query<LimitChange>(
          `select extract(epoch from at)::float8 * 1000 as at, source, rate, concurrency from public.limit_change where not gone order by at`,
        );
        for (; judged < calls.length && calls[judged]!.at < Date.now() - judgedAfterMs; judged++) {
          const call = calls[judged]!;
          judgeRate(world, changes, judged, call);
          judgeConcurrency(world, changes, call);
        }
      },
    },
    {
      name: 'every job has a type, a source and a pair',
      holds: 'No open job is without one of them, and no pair names a job that does not exist.',
      async look(world) {
        const { rows } = await world.db.query<{ name: string }>(`
          select format('job %s of %s %s has no %s', j.id, coalesce(r.data_type, 'type ' || j.type_id), j.key,
            case when r.type_id is null then 'type' when s.id is null then 'source' else 'pair' end) as name
          from pgfresh.job as j
          left join pgfresh.data_type_registry as r on r.type_id = j.type_id
          left join pgfresh.sources as s on s.id = j.source_id
          left join pgfresh.pairs as p on p.type_id = j.type_id and p.key = j.key and p.job_id = j.id
          where r.type_id is null or s.id is null or p.key is null
          union all
          select format('the pair %s %s names the job %s, which is not there', p.type_id, p.key, p.job_id)
          from pgfresh.pairs as p
          where p.job_id is not null and not exists (select from pgfresh.job as j where j.id = p.job_id)`);
        for (const name of orphans.seen(rows.map((row) => row.name))) world.journal.violated(this.name, {}, name);
      },
    },
    {
      name: 'jobs are queued at the source of their type',
      holds: 'A job that waits is at the source that its data type has now.',
      async look(world) {
        const { rows } = await world.db.query<{ name: string; type: string; source: string }>(`
          select format('job %s of %s %s waits at %s, and its type is of %s', j.id, r.data_type, j.key, coalesce(s.name, 'no source'), r.source) as name,
            r.data_type as type, r.source
          from pgfresh.job as j
          join pgfresh.data_type_registry as r on r.type_id = j.type_id
          left join pgfresh.sources as s on s.id = j.source_id
          where j.state <> 'x' and j.source_id <> r.source_id`);
        const found = strays.seen(rows.map((row) => row.name));
        for (const { name, type } of rows.filter((row) => found.includes(row.name)))
          world.journal.violated(this.name, { type }, name);
      },
    },
    {
      name: 'reservations are those of running jobs',
      holds: 'What a source has reserved is the sum of what its running jobs have reserved.',
      async look(world) {
        const { rows } = await world.db.query<{ source: string; reserved: string; running: string }>(`
          select s.name as source, st.reserved, coalesce((
            select sum(j.reserved) from pgfresh.job as j where j.source_id = s.id and j.state = 'x'), 0) as running
          from pgfresh.sources as s join pgfresh.source_state as st on st.source_id = s.id`);
        const wrong = rows.filter(({ reserved, running }) => reserved !== running);
        const found = leaks.seen(
          wrong.map(({ source, reserved, running }) => `${source}: ${Number(reserved) - Number(running)}`),
        );
        for (const text of found) {
          const [source = ''] = text.split(':');
          world.journal.violated(this.name, { source }, `${text} bytes are reserved for nothing`);
        }
      },
    },
    {
      name: 'put-backs are bounded',
      holds: `A job has at most ${allowances.putBacks} attempts that counted neither a retry nor a loss.`,
      async look(world) {
        const { rows } = await world.db.query<{
          id: string;
          type: string;
          key: string;
          attempt: number;
          retries: number;
        }>(
          `select j.id, r.data_type as type, j.key, j.attempt, j.retries from pgfresh.job as j join pgfresh.data_type_registry as r using (type_id)
           where j.attempt - j.retries - j.lost > $1::int`,
          [allowances.putBacks + 1],
        );
        const found = attempts.seen(
          rows.map(({ id }) => id),
          0,
        );
        for (const { id, type, key, attempt, retries } of rows.filter((row) => found.includes(row.id)))
          world.journal.violated(
            this.name,
            { type, key },
            `job ${id} of ${type} ${key} is in attempt ${attempt} with ${retries} retries`,
          );
      },
    },
    {
      name: 'the planner ticks',
      holds: 'While a planner runs, ticks go on, whatever is locked or hangs.',
      async look(world) {
        if (!world.wasWhole(Date.now() - allowances.tick)) return;
        const { rows } = await world.db.query<{ ago: number }>(
          `select extract(epoch from pgfresh.clock() - max(last_at))::float8 * 1000 as ago from pgfresh.planner_run where kind = 'tick'`,
        );
        const [{ ago } = { ago: 0 }] = rows;
        if (ago > allowances.tick + world.lag)
          world.journal.violated(this.name, {}, `the last tick was ${Math.round(ago / 1000)} s ago`);
      },
    },
    {
      name: 'processes run until they are asked to end',
      holds: 'No process exits by itself, and each that is asked to stop does so in time.',
      look(world) {
        for (const running of [...world.processes.values(), ...world.ended])
          if (running.problem !== undefined && running.readyAt !== undefined)
            world.journal.violated(
              this.name,
              {},
              `${running.tag} (${running.plan.roles}) ${running.problem}: ${running.lastWords}`,
            );
      },
    },
  ];
}

/** Judged at each call, in the moment in which it arrives. */
export function judgeCall(world: World, call: Call): void {
  const { source, type, key } = call;
  if (type === bystander.name) return;
  const { journal, wants } = world;
  if (!wants.isWanted(type, key))
    journal.violated(
      'nothing is called for a pair that no one wants',
      { type, key },
      `${source} was called for ${type} ${key}: ${wants.describe(type, key)}`,
    );
  const unlisted = type === 'quote' ? wants.unlistedSince.get(key) : undefined;
  if (unlisted !== undefined && call.at - unlisted > allowances.unlisted)
    journal.violated(
      'nothing is called for a key that is not listed',
      { type, key },
      `${type} ${key} was called ${Math.round((call.at - unlisted) / 1000)} s after the key had gone`,
    );
  const paused = world.pausedSince.get(source);
  if (paused !== undefined && call.at - paused > allowances.pause)
    journal.violated(
      'a source that is paused is not called',
      { source, type, key },
      `${source} was called for ${type} ${key} ${Math.round((call.at - paused) / 1000)} s after its pause`,
    );
  const running = [...world.processes.values(), ...world.ended].find(({ tag }) => tag === call.process);
  const stopping = running?.endAskedAt;
  if (stopping !== undefined && call.at - stopping > allowances.stop && call.manner !== 'redirected') {
    const after = world.provider.calls.filter(
      (one) => one.process === call.process && one.at - stopping > allowances.stop,
    );
    if (after.length >= 3)
      journal.violated(
        'a process that stops begins no calls',
        { source },
        `${call.process} made ${after.length} calls, the last ${Math.round((call.at - stopping) / 100) / 10} s after SIGTERM`,
      );
  }
}

function judgeRate(world: World, changes: readonly LimitChange[], place: number, call: Call): void {
  const limit = highest(changes, 'rate', {
    source: call.source,
    from: call.at - 60_000 - allowances.limitInForce,
    to: call.at,
  });
  if (limit === Infinity) return;
  let count = 1;
  for (let earlier = place - 1; earlier >= 0; earlier--) {
    const other = world.provider.calls[earlier]!;
    if (call.at - other.at >= 60_000) break;
    if (other.source === call.source && other.apiKey === call.apiKey) count++;
  }
  if (count > limit)
    world.journal.violated(
      'calls stay within limits',
      { source: call.source },
      `${call.source} was called ${count} times in 60 s with the key ${call.apiKey}, and ${limit} were allowed at most`,
    );
}

function judgeConcurrency(world: World, changes: readonly LimitChange[], call: Call): void {
  const from = call.at - allowances.concurrencyInForce;
  const limit = highest(changes, 'concurrency', { source: call.source, from, to: call.at });
  const isExact = world.wasWhole(from) && world.losses.every((at) => at < from || at > call.at);
  if (isExact && call.open > limit)
    world.journal.violated(
      'calls stay within limits',
      { source: call.source },
      `${call.source} had ${call.open} calls open, and ${limit} jobs were allowed at once`,
    );
}

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
          if (age !== undefined && age <= ttl + (allowances.late + world.lag) / 1000) continue;
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
          const shown = { explain_pair: state, read_pairs: read };
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
          if (page.status !== 'live') {
            world.journal.violated('pages are connected', {}, `page ${page.name} is ${page.status}`);
            continue;
          }
          for (const { type, key, row } of rows) {
            if (
              !page.looks.some((look) => look.type === type && comparedKey(type, look.key) === comparedKey(type, key))
            )
              continue;
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
        for (const table of [...types.map(({ name }) => name), 'news_moved', bystander.name]) {
          const { rows } = await world.db.query<{ key: string; value: string }>(
            `select key, value from public.${table}`,
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

/** Looked at when all viewers have left and nothing is open. */
export const atRest: readonly Invariant[] = [
  {
    name: 'nothing is reserved at rest',
    holds: 'With no viewer and no open job, no source has bytes reserved.',
    async look(world) {
      const { rows } = await world.db.query<{ source: string; reserved: string }>(
        `select s.name as source, st.reserved from pgfresh.source_state as st join pgfresh.sources as s on s.id = st.source_id
         where st.reserved <> 0 and not exists (select from pgfresh.job as j where j.source_id = s.id and j.state = 'x')`,
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
         from pgfresh.job as j join pgfresh.data_type_registry as r using (type_id)`,
      );
      for (const { type, key, state, age } of rows)
        if (!world.wants.isWanted(type, key))
          world.journal.violated(this.name, { type, key }, `a job of ${type} ${key} is open (${state}), ${age} s old`);
    },
  },
];

interface ViewedRow {
  readonly type: string;
  readonly key: string;
  readonly ttl: number;
  readonly state: string;
  readonly read: string | null;
  readonly row: { readonly age: number; readonly confirmed: number; readonly value: number } | undefined;
}

/** The pairs that someone looks at, with their rows and what is shown of them. */
async function viewedRows(world: World): Promise<ViewedRow[]> {
  const looks = [...world.sql.looks.filter(({ silent }) => !silent), ...world.pages.flatMap((page) => page.looks)];
  const pairs = new Map(looks.map(({ type, key }) => [`${type} ${comparedKey(type, key)}`, { type, key }]));
  const found: ViewedRow[] = [];
  for (const { type, key } of pairs.values()) {
    const { rows } = await world.db.query<{
      ttl: number;
      explained: Record<string, string | null>;
      read: string | null;
      age: number | null;
      value: string | null;
    }>(
      `with explained as materialized (select pgfresh.explain_pair($1::text, $2::text) as said)
       select extract(epoch from r.ttl)::float8 as ttl, e.said as explained,
         (select p.state from pgfresh.read_pairs(r.type_id, array[e.said ->> 'key']) as p) as read,
         extract(epoch from pgfresh.clock() - t.fetched_at)::float8 as age, t.value
       from pgfresh.data_type_registry as r cross join explained as e
       left join public.${type} as t on t.key = e.said ->> 'key'
       where r.data_type = $1::text`,
      [type, key],
    );
    const [one] = rows;
    if (!one) continue;
    const confirmedAt = one.explained['confirmed_at'] ?? null;
    const confirmed = confirmedAt === null ? Infinity : (Date.now() - Date.parse(confirmedAt)) / 1000;
    found.push({
      type,
      key,
      ttl: one.ttl,
      state: one.explained['state']!,
      read: one.read,
      row: one.age === null ? undefined : { age: one.age, confirmed, value: Number(one.value) },
    });
  }
  return found;
}

async function explain(world: World, type: string, key: string): Promise<string> {
  const { rows } = await world.db.query<{ said: Record<string, unknown> }>(
    'select pgfresh.explain_pair($1::text, $2::text) as said',
    [type, key],
  );
  const names = ['state', 'activity', 'reason', 'age_seconds', 'viewers', 'demanded', 'job', 'last_outcome', 'words'];
  return names.map((name) => `${name} ${JSON.stringify(rows[0]!.said[name])}`).join(', ');
}

let docs: string | undefined;
async function readDocs(): Promise<string> {
  const folder = new URL('../../../docs/', import.meta.url);
  const files = (await readdir(folder)).filter((name) => name.endsWith('.md'));
  docs ??= (await Promise.all(files.map((name) => readFile(new URL(name, folder), 'utf8')))).join('\n');
  return docs;
}
