import type { Database, Queryable } from '../../src/database/index.ts';
import { runSqlJob, type SqlJobEnd, type SqlJobRun } from '../../src/schedule/sql-job.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { openSession } from '../harness/session.ts';

/** Somebody who may register jobs, with a schema of his own. */
export interface Person {
  readonly name: string;
  readonly url: string;
  readonly session: Queryable;
}

/** The number of whoever runs the jobs here. */
const scheduler = 1;

/** A database with a person in it, short words for jobs, and one session in which they run, one after the other. */
export class JobScene {
  readonly url: string;
  readonly db: Database;
  readonly guests: Database;
  readonly ann: Person;

  private constructor(url: string, db: Database, guests: Database, ann: Person) {
    this.url = url;
    this.db = db;
    this.guests = guests;
    this.ann = ann;
  }

  static async open(): Promise<JobScene> {
    const url = await createDatabase();
    const db = openDatabase(url);
    await db.query(`
      create function public.start_run(p_job int, p_scheduler bigint, p_params jsonb) returns bigint language sql as $$
        insert into pgfresh.scheduled_job_runs (job_id, state, triggered_by, scheduled_for, started_at, scheduler, params)
        values (p_job, 'running', 'manual', pgfresh.clock(), pgfresh.clock(), p_scheduler, p_params) returning id $$`);
    const guests = openDatabase(url, { poolSize: 1, applicationName: 'pgfresh test guests', pipelined: true });
    return new JobScene(url, db, guests, await person(url, db, 'ann'));
  }

  person(schema: string): Promise<Person> {
    return person(this.url, this.db, schema);
  }

  /** Makes a function of this body and registers it. */
  async add(
    name: string,
    body: string,
    columns: Readonly<Record<string, unknown>> = {},
    who = this.ann,
    schema = 'ann',
  ) {
    await who.session.query(plpgsql(`${schema}.${name}()`, body));
    return this.register({ name, function_name: `${schema}.${name}`, schedule: '0 3 * * *', ...columns }, who);
  }

  async register(
    columns: Readonly<Record<string, unknown>>,
    { session }: Pick<Person, 'session'> = this.ann,
  ): Promise<number> {
    const names = Object.keys(columns);
    const [row] = await session.query<{ id: number }>(
      `insert into pgfresh.scheduled_jobs (${names.join(', ')}) values (${names.map((_, n) => `$${n + 1}`).join(', ')}) returning id`,
      Object.values(columns),
    );
    return row!.id;
  }

  /** Runs it as a scheduler would that has just started the run. */
  async run(
    jobId: number,
    {
      params = null,
      guests = this.guests,
      ...run
    }: Partial<SqlJobRun> & { params?: object | null; guests?: Database } = {},
  ): Promise<SqlJobEnd> {
    const id = await this.value<number>(`public.start_run($1::int, $2::bigint, $3::jsonb)`, [
      jobId,
      scheduler,
      params && JSON.stringify(params),
    ]);
    return runSqlJob(guests, { run: id, scheduler, timeoutMs: 10_000, ...run });
  }

  /** How many of its runs have succeeded. */
  recorded(jobId: number): Promise<number> {
    return this.value<number>(
      `(select count(*)::int from pgfresh.scheduled_job_runs where job_id = $1::int and state = 'succeeded')`,
      [jobId],
    );
  }

  async problem(jobId: number): Promise<{ problem: string; next_step: string } | undefined> {
    const [row] = await this.db.query<{ problem: string; next_step: string }>(
      'select p.problem, p.next_step from pgfresh.scheduled_jobs as j cross join lateral pgfresh_engine.job_problem(j) as p where j.id = $1::int',
      [jobId],
    );
    return row;
  }

  async value<T>(expression: string, values: readonly unknown[] = []): Promise<T> {
    const [row] = await this.db.query<{ value: T }>(`select (${expression}) as value`, values);
    return row!.value;
  }
}

async function person(url: string, db: Queryable, schema: string): Promise<Person> {
  const login = await createLogin(url, 'pgfresh_scheduler');
  await db.query(`create schema ${schema} authorization ${login.name}; grant usage on schema ${schema} to public`);
  return { ...login, session: await openSession(login.url) };
}

export function plpgsql(signature: string, body: string, options = ''): string {
  return `create or replace function ${signature} returns jsonb language plpgsql ${options} as $body$ begin ${body} end $body$`;
}

/** What a function returns that has done its work. */
export const done = (details = `'{}'::jsonb`): string =>
  `return jsonb_build_object('success', true, 'message', 'done', 'details', ${details});`;
