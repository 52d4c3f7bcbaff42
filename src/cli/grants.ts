import { InvalidArgumentError } from 'commander';
import pg from 'pg';
import { nearMiss, type ResolvedConfig } from '../config/index.ts';
import { databaseRoles, failureOf, type Database, type ProcessRole, type Queryable } from '../database/index.ts';
import { PgfreshError } from '../errors/index.ts';
import { neededRights, readCatalog } from '../refresh/index.ts';
import { listTypes, readTableRights, tableGrants, type TableRight } from '../registry/index.ts';
import { roleNames } from '../runtime/index.ts';

/** A login, its role, and the tables that it uses besides those of the data types. */
export interface Grantee {
  readonly role: ProcessRole;
  readonly login: string;
  readonly tables: readonly { readonly name: string; readonly rights: readonly TableRight[] }[];
}

type Configured = Pick<ResolvedConfig, 'sources' | 'dataTypes'>;

const writing: readonly TableRight[] = ['select', 'insert', 'update', 'delete'];
const uses: Readonly<Record<string, readonly TableRight[]>> = { table: writing, read: ['select'] };

/** Reads `worker=app_worker,table=price_points,gateway=app_gateway`; a table belongs to the login before it. */
export function parseGrants(text: string, before: readonly Grantee[] = []): Grantee[] {
  const grantees = [...before];
  for (const part of text.split(',')) {
    const [word = '', name = ''] = part.split('=').map((side) => side.trim());
    const role = roleNames.find((one) => one === word);
    if (name === '') throw new InvalidArgumentError(`expected role=login, table=name or read=name, got "${part}"`);
    if (role) grantees.push({ role, login: name, tables: [] });
    else if (Object.hasOwn(uses, word)) grantees.push(withTable(grantees.pop(), part, name, uses[word]!));
    else throw new InvalidArgumentError(`there is no role "${word}"${hint(word)}`);
  }
  return grantees;
}

function withTable(grantee: Grantee | undefined, part: string, name: string, rights: readonly TableRight[]): Grantee {
  if (!grantee) throw new InvalidArgumentError(`"${part}" must follow the login that uses the table`);
  return { ...grantee, tables: [...grantee.tables, { name, rights }] };
}

function hint(word: string): string {
  const near = nearMiss(word, roleNames);
  return near ? `; did you mean "${near}"?` : `; choose from: ${roleNames.join(', ')}`;
}

/** Every GRANT that the logins need, each once. */
export async function grantStatements(
  db: Queryable,
  grantees: readonly Grantee[],
  config: Configured,
): Promise<string[]> {
  const [row] = await db.query<{ database: string }>('select quote_ident(current_database()) as database');
  const statements: string[] = [];
  for (const { role, login, tables } of grantees) {
    const to = pg.escapeIdentifier(login);
    const used = [...(role === 'worker' ? await mirroredTables(db, config) : []), ...tables];
    const known = await readTableRights(
      db,
      used.map(({ name }) => name),
    );
    statements.push(
      `grant connect on database ${row!.database} to ${to};`,
      `grant ${databaseRoles[role]} to ${to};`,
      ...used.flatMap(({ name, rights }) => {
        const table = known.get(name);
        if (table) return tableGrants(table, rights, to);
        throw new PgfreshError('PGF_USAGE', { problem: `There is no table ${name}` });
      }),
    );
  }
  return [...new Set(statements)];
}

/** Throws if a login does not exist. Not needed for statements that are only printed. */
export async function requireLogins(db: Queryable, grantees: readonly Grantee[]): Promise<void> {
  const missing = await db.query<{ login: string }>(
    `select login from unnest($1::text[]) as login where not exists (select from pg_roles where rolname = login) order by login collate "C"`,
    [[...new Set(grantees.map(({ login }) => login))]],
  );
  if (missing.length === 0) return;
  const names = missing.map(({ login }) => login);
  const create = names.map((name) => `create role ${pg.escapeIdentifier(name)} login;`).join(' ');
  const logins = names.map((name) => `"${name}"`).join(', ');
  throw new PgfreshError('PGF_LOGIN_UNKNOWN', { logins, create });
}

/** The tables that a worker with this configuration writes. */
async function mirroredTables(
  db: Queryable,
  { sources, dataTypes = [] }: Configured,
): Promise<Grantee['tables'][number][]> {
  const catalog = await readCatalog(db, { sources, dataTypes }, { writes: false });
  const fetched = new Map([...catalog.types.values()].map((type) => [type.name, type]));
  const types = (await listTypes(db)).flatMap(({ data_type, table_name: name }) => {
    const type = fetched.get(data_type);
    return type ? [{ name: String(name), rights: neededRights(type) }] : [];
  });
  const byTable = Map.groupBy(types, ({ name }) => name);
  // Two types may share a table and need different rights.
  return [...byTable].map(([name, same]) => ({
    name,
    rights: writing.filter((right) => same.some(({ rights }) => rights.includes(right))),
  }));
}

/** Runs the statements, all or none. */
export async function applyGrants(db: Database, statements: readonly string[]): Promise<void> {
  await db.transact('grants', async (tx) => {
    for (const statement of statements) {
      await tx.query(statement).catch(async (error: unknown) => {
        throw failureOf(error) === 'permission' ? await mayNotGrant(db, statement, error) : error;
      });
    }
  });
}

async function mayNotGrant(db: Queryable, grant: string, cause: unknown): Promise<PgfreshError> {
  const [login] = await db.query<{ user: string }>('select current_user as "user"');
  const who = grant.startsWith('grant pgfresh_') ? 'a superuser, or as a role that may grant it' : 'its owner';
  return new PgfreshError(
    'PGF_DATABASE_RIGHTS',
    { ...login!, problem: 'it may not grant this', who, grant },
    { cause },
  );
}
