import { readSqlFiles, type Queryable } from '../src/database/index.ts';
import { readFunctions, readRelations, type SqlFunction, type SqlRelation } from './sql-catalogue.ts';

/** The files of `sql/api` that have functions, in the order of the page. One that is not here fails the page. */
const topics: Readonly<Record<string, string>> = {
  subscriptions: 'Who looks at what',
  planning: 'What is refreshed',
  queue: 'The queue',
  sources: 'Sources and what they cost',
  schedule: 'Scheduled jobs',
  leases: 'Leases',
  rules: 'Rules',
};

/** Parts that systems of this kind usually have, and what serves their purpose here. */
const familiar: Readonly<Record<string, readonly string[]>> = {
  'a table of what is cached, for how long and from where': ['data_type_registry', 'sources'],
  'a check whether a row is too old': ['is_data_stale', 'check_and_queue_stale_batch', 'check_and_queue_stale_data'],
  'a list of who looks at what': ['upsert_active_subscription', 'remove_active_subscription', 'active_subscriptions'],
  'a job table with states and locks': ['api_call_queue', 'stuck_jobs', 'failed_jobs'],
  'an insert that does nothing if the job is there': ['queue_refresh_if_not_exists'],
  'a claim with `skip locked`': ['get_queue_batch', 'claim_next_pending_job'],
  'functions that end a job, or put it back': ['complete_queue_job', 'fail_queue_job', 'reset_job_immediate'],
  'heartbeats, and a timeout for stuck jobs': ['heartbeat_jobs', 'recover_stuck_jobs', 'stuck_jobs'],
  'counters of calls and bytes': ['is_quota_exceeded', 'api_data_usage', 'usage_corrections', 'source_health'],
  'refreshes at set times': ['queue_scheduled_refreshes'],
  'a cron table': ['scheduled_jobs', 'scheduled_job_runs', 'check_cron_job_health'],
  'a lock that expires': [
    'acquire_refresh_lock',
    'renew_refresh_lock',
    'fence_refresh_lock',
    'release_refresh_lock',
    'refresh_schedule',
  ],
  'a first-seen column that upserts must keep': ['preserve_first_seen_at'],
  'a function that drops old partitions': ['maintain_queue_partitions'],
};

/** The page about everything in the schema pgfresh, from the comments in the database. */
export async function sqlPage(db: Queryable): Promise<string> {
  const isPublic = ({ schema }: { readonly schema: string }): boolean => schema === 'pgfresh';
  const functions = (await readFunctions(db)).filter(isPublic);
  const relations = (await readRelations(db)).filter(isPublic);
  return `# The schema pgfresh in SQL

Everything below can be used from any language that speaks SQL. [queue.md](../internals/queue.md) explains how the parts work together, with an example session.
What is in the schema \`pgfresh_engine\` is not: it may change with every version.
This page is written by \`npm run docs\` from the comments in the database. \`\\df+ pgfresh.*\` in psql shows the same.

Rights are given by name: nobody but the owner of the schema may read or call anything until you grant it.
Times are the database's own. Ids of jobs are \`bigint\`, and grow.

A call that makes no sense changes nothing and raises SQLSTATE \`PGF01\`. The message begins with a code of [errors.md](errors.md), and the hint says what to do.

${(await functionsByTopic(functions)).map(topicSection).join('\n')}
## Views

${relations
  .filter(({ kind }) => kind === 'view')
  .map(relationEntry)
  .join('\n')}
## Tables

Read them as you like; write only \`sources\`, \`data_type_registry\`, \`scheduled_jobs\`, and of \`refresh_schedule\` whether a work is enabled and its waits. Everything else is written by the functions.

${relations
  .filter(({ kind }) => kind === 'table')
  .map(relationEntry)
  .join('\n')}
## If you have such a system already

Many systems have a job table, a few functions around it, and a cron table. This is where their parts are here. Ids are \`bigint\`, a \`key\` is what you may call a symbol or an id, quotas belong to a source, and a job is ended with its \`attempt\`, which keeps a late worker from ending what is no longer its own.

| you have | here |
|---|---|
${familiarRows(functions, relations).join('\n')}
`;
}

interface Topic {
  readonly title: string;
  readonly functions: readonly SqlFunction[];
}

async function functionsByTopic(functions: readonly SqlFunction[]): Promise<Topic[]> {
  const definedIn = new Map(
    (await readSqlFiles()).functions.flatMap(({ name: file, text }) =>
      [...text.matchAll(/create or replace function pgfresh\.(\w+)/g)].map((match) => [match[1]!, file] as const),
    ),
  );
  const homeless = functions.filter(({ name }) => !((definedIn.get(name)?.slice('api/'.length) ?? '') in topics));
  if (homeless.length > 0) {
    throw new Error(`scripts/sql-page.ts has no topic for ${homeless.map(({ name }) => name).join(', ')}`);
  }
  const order = [...definedIn.keys()];
  return Object.entries(topics).map(([file, title]) => ({
    title,
    functions: functions
      .filter(({ name }) => definedIn.get(name) === `api/${file}`)
      .toSorted((a, b) => order.indexOf(a.name) - order.indexOf(b.name)),
  }));
}

function topicSection({ title, functions }: Topic): string {
  return [
    `## ${title}\n`,
    ...functions.map(
      (entry) => `### ${entry.name}\n\n\`\`\`\n${signatureBlock(entry)}\n\`\`\`\n\n${entry.comment ?? ''}\n`,
    ),
  ].join('\n');
}

function relationEntry({ name, comment, columns }: SqlRelation): string {
  return `### ${name}\n\n${comment ?? ''}\n\nColumns: ${columns.map((column) => `\`${asWritten(column)}\``).join(', ')}.\n`;
}

function familiarRows(functions: readonly SqlFunction[], relations: readonly SqlRelation[]): string[] {
  const known = new Set([...functions, ...relations].map(({ name }) => name));
  return Object.entries(familiar).map(([part, names]) => {
    const missing = names.filter((name) => !known.has(name));
    if (missing.length > 0) throw new Error(`scripts/sql-page.ts names what is not there: ${missing.join(', ')}`);
    const here = names.map((name) => `[${name}](#${name})`);
    return `| ${part} | ${here.join(', ')} |`;
  });
}

function signature({ name, arguments: list, result }: SqlFunction): string {
  return `${name}(${asWritten(list)}) → ${asWritten(result)}`;
}

/** One argument a line where there are many. */
function signatureBlock(entry: SqlFunction): string {
  const line = signature(entry);
  return line.length <= 120 ? line : line.replace(entry.name + '(', '$&\n  ').replaceAll(', p_', ',\n  p_');
}

/** Types and defaults as people write them, not as PostgreSQL prints them. */
function asWritten(text: string): string {
  return text
    .replaceAll(/ DEFAULT (NULL|'[^']*'|[\w-]+)(::[\w ]+(\[\])?)?/g, (_, value: string) => {
      return ` default ${value === 'NULL' ? 'null' : value}`;
    })
    .replaceAll('timestamp with time zone', 'timestamptz')
    .replaceAll('integer', 'int')
    .replace(/^TABLE\(/, 'table (')
    .replace(/^SETOF /, 'setof ');
}
