import { failureOf, type Failure } from '../database/index.ts';
import { asPgfreshError } from '../errors/index.ts';
import type { RefusalName } from './outcomes.ts';

/** What to do after a commit of ends has failed. */
export type NextStep =
  /** The same commit again, with the answers that are here. `counted` says whether that is one of its three times. */
  | { readonly step: 'again'; readonly counted: boolean }
  /** One of them is guilty: each half by itself. */
  | { readonly step: 'halves' }
  /** Something is locked or too slow: later, with the answers that are here. `shared` says that one of them may be it. */
  | { readonly step: 'later'; readonly shared: boolean }
  /** The server, or one behind a table, does not write now: later, with the answers that are here. */
  | { readonly step: 'wait'; readonly shared: boolean }
  /** It is this one. */
  | { readonly step: 'refuse'; readonly outcome: RefusalName };

const repeats = 3;

/** Whose fault a failure is: the connection's, the server's, the moment's, a lock's, the definition's, or that of one of the rows. */
const blame: Readonly<Record<Failure, 'connection' | 'server' | 'moment' | 'lock' | 'definition' | 'row'>> = {
  connection: 'connection',
  // A server that has become a standby, has no room or refuses the login may be well again in a moment. It may also be
  // what a trigger or a foreign table of one data type depends on.
  readonly: 'server',
  resources: 'server',
  login: 'server',
  deadlock: 'moment',
  serialization: 'moment',
  lock_timeout: 'lock',
  statement_timeout: 'lock',
  permission: 'definition',
  missing_object: 'definition',
  unique: 'row',
  foreign_key: 'row',
  constraint: 'row',
  invalid_data: 'row',
  raised: 'row',
  other: 'row',
};

/** Decides by the failure, by how many jobs were in the commit, and by how often it was repeated. */
export function afterFailure(error: unknown, jobs: number, repeated: number): NextStep {
  // An unknown commit is run again: the fence tells what became of it.
  const failure = isLost(error) ? 'connection' : failureOf(error);
  const guilty = blame[failure];
  if (guilty === 'connection') return { step: 'again', counted: false };
  if (guilty === 'server') return { step: 'wait', shared: jobs > 1 };
  if (guilty === 'lock') return { step: 'later', shared: jobs > 1 };
  if (guilty === 'moment' && repeated < repeats) return { step: 'again', counted: true };
  if (guilty === 'moment') return { step: 'refuse', outcome: 'interrupted' };
  if (guilty === 'definition') return { step: 'refuse', outcome: 'config' };
  if (jobs > 1) return { step: 'halves' };
  return { step: 'refuse', outcome: failure === 'foreign_key' ? 'dependency' : 'write_conflict' };
}

function isLost(error: unknown): boolean {
  const code = asPgfreshError(error).code;
  return code === 'PGF_DATABASE_LOST' || code === 'PGF_COMMIT_UNKNOWN';
}
