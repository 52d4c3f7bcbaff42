import { failureOf, type Failure } from '../database/index.ts';
import { asPgfreshError } from '../errors/index.ts';
import type { RefusalName } from './outcomes.ts';

/** What to do after a commit has failed. */
export type NextStep =
  /** Repeat the commit with the same answers. `counted` says whether this is one of its three repeats. */
  | { readonly step: 'again'; readonly counted: boolean }
  /** One of the answers is the cause: commit each half separately. */
  | { readonly step: 'halves' }
  /** A lock or a slow statement: retry later with the same answers. `shared`: one of several jobs may be the cause. */
  | { readonly step: 'later'; readonly shared: boolean }
  /** This server, or one behind a foreign table, refuses writes: retry later with the same answers. */
  | { readonly step: 'wait'; readonly shared: boolean }
  /** This answer is the cause. */
  | { readonly step: 'refuse'; readonly outcome: RefusalName };

const repeats = 3;

/** The cause of a failure: the connection, the server, bad timing, a lock, the definition, or one of the rows. */
const blame: Readonly<Record<Failure, 'connection' | 'server' | 'moment' | 'lock' | 'definition' | 'row'>> = {
  connection: 'connection',
  // A server that is a standby, has no space or refuses the login may recover soon. It may also be another server that
  // a trigger or a foreign table of one data type depends on.
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

/** Decides by the failure, the number of jobs in the commit, and the number of repeats so far. */
export function afterFailure(error: unknown, jobs: number, repeated: number): NextStep {
  // If the result of the commit is unknown, repeat it: the fence tells whether it went through.
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
