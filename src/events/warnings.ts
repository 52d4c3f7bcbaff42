interface WarningText {
  /** What happened and what pgfresh does about it; then the next step. */
  readonly means: string;
  /** The page with more, below `docs/`. */
  readonly page?: string;
}

/** Every warning: a condition that is not an error and that nothing else would show. `docs/reference/errors.md` is written from this table. */
export const warnings = {
  setting_misspelt: {
    means: 'A `PGFRESH_` environment variable is not a setting, but nearly one. Correct its name.',
    page: 'reference/configuration.md#settings',
  },
  transaction_pooler: {
    means:
      '`DATABASE_URL` leads to a transaction pooler, so changes are polled. Set `PGFRESH_LISTEN_URL` to the server itself.',
    page: 'production/deploy.md#behind-a-pooler',
  },
  subscriber_failed: {
    means:
      'An event subscriber in your own program threw. It stays subscribed. Correct it; the warning is repeated at most once per minute and subscriber.',
  },
  type_unresolved: {
    means:
      'A registry row names a table, column or function that is gone or has changed. The data type is not planned; the others are. The next step says what to run.',
    page: 'internals/registry.md#who-owns-a-row',
  },
  type_quarantined: {
    means:
      'A data type timed out twice within a minute: its table is locked, or its gate, staleness function or table of keys does not answer. It is neither planned nor read until a probe gets an answer.',
    page: 'production/troubleshoot.md#a-data-type-is-quarantined',
  },
  type_refused: {
    means:
      'A data type of the configuration could not be registered when a process started, and was skipped; its earlier registration stays. Correct it, then run `pgfresh migrate`.',
  },
  registry_differs: {
    means:
      'The configuration of a process differs from the registry, and its login may not write the registry. The process uses what is registered. Run `pgfresh migrate` as the owner of the schema.',
    page: 'production/logins.md',
  },
  check_raised: {
    means:
      'A staleness function raised an error. The pair counts as stale, at most once per TTL. Correct the data or the function.',
  },
  row_lost: {
    means:
      'Rows vanish or go back in time right after they are written. They are fetched less and less often. Find what deletes them.',
    page: 'production/troubleshoot.md#rows-vanish-after-they-are-written',
  },
  stale_when_written: {
    means:
      'A staleness function calls rows stale that were just written. They are fetched once per TTL. Correct the function.',
    page: 'internals/planner.md#rows-that-others-delete-or-age',
  },
  gate_raised: { means: 'A gate function raised an error, and counts as open until it is corrected.' },
  keys_raised: {
    means:
      'The keys of a scheduled data type could not be read from its table of keys, so its round is paused. Correct the table or the rights on it.',
  },
  demand_lost: {
    means:
      'All viewers were gone at once, as when a gateway restarts. Their pairs are kept warm for two minutes, once.',
    page: 'guides/demand-from-sql.md',
  },
  breaker_opened: {
    means: 'A source failed too often and is paused. After the pause, one job at a time tests it.',
    page: 'production/troubleshoot.md#a-source-is-not-called',
  },
  key_refused: {
    means: 'A provider rejects an API key, which is paused. Replace the key.',
    page: 'guides/sources.md#rotate-a-key',
  },
  answers_refused: {
    means:
      'Several answers of a data type in a row were refused, most likely because the provider changed them. The data type is paused, and rows stay. See `pgfresh refused list`.',
    page: 'production/troubleshoot.md#answers-are-refused',
  },
  older_source: {
    means:
      'A source keeps answering with data older than what is stored, as a stuck cache does. The pairs become stale.',
    page: 'reference/states.md',
  },
  type_unwritable: {
    means:
      'A worker does not serve a data type, because its table or a column is missing, a grant is missing, or the key has no unique constraint. No call is spent on it. `pgfresh check` shows the same.',
    page: 'production/logins.md',
  },
  no_worker: {
    means:
      'A data type has viewers or a schedule, and no running worker can fetch it: none runs, none has its fetcher, or all are limited to other data types.',
    page: 'production/troubleshoot.md#nothing-is-fetched',
  },
  suspicious_answers: {
    means: 'Answers would have deleted more rows than their data type allows. They were stored instead of applied.',
    page: 'production/troubleshoot.md#answers-are-refused',
  },
  many_empty: {
    means:
      'A source says that there is nothing for more than ten, and more than a quarter, of the viewed keys of a data type that have rows. The rows are kept and do not count as fresh. Check whether the provider lost its data.',
    page: 'guides/data-types.md#deletions',
  },
  rows_not_evicted: {
    means: 'Rows without viewers could not be deleted. The next step says what prevents it.',
    page: 'guides/data-types.md#deletions',
  },
  answer_without_length: {
    means: 'A provider does not send the length of its answers, so a truncated one cannot be detected by its length.',
    page: 'guides/sources.md',
  },
  answer_overlong: { means: 'An answer was longer than the provider announced.', page: 'guides/sources.md' },
  limit_without_hint: {
    means:
      'A provider rejects calls as too many (429) without saying for how long. The source is paused for longer each time. Set its rate limit to what the provider allows.',
    page: 'guides/limits.md#when-the-provider-says-wait',
  },
  changes_unseen: {
    means:
      'A table has no triggers of pgfresh. Viewers see what pgfresh writes at once, and what others write only later.',
    page: 'internals/changes.md#the-triggers',
  },
  triggers_left: {
    means:
      'A data type was removed while its table was in use, and its triggers remain. They do nothing. The next step drops them.',
  },
  database_restored: {
    means:
      'This database was restored from a dump or copied. Sources with a rate limit waited for a minute at its first start.',
    page: 'production/upgrade.md#after-a-restore',
  },
} as const satisfies Record<string, WarningText>;

/** Warnings are grouped by code wherever they are counted. */
export type WarningCode = keyof typeof warnings;
