/**
 * Every error a user can meet: its code, what happened, and what to do next.
 * Codes are stable and never reused. `docs/reference/errors.md` is written from this table.
 *
 * `{name}` is a placeholder; the compiler checks the names.
 */
export const exitCodes = {
  failure: 1,
  usage: 2,
  config: 3,
  database: 4,
  newer: 5,
} as const;

/** The meaning of each exit code, for the help and the docs. */
export const exitMeanings: Readonly<Record<number, string>> = {
  0: 'done',
  [exitCodes.failure]: 'the command failed, or "pgfresh check" found something fatal',
  [exitCodes.usage]: 'the command line is wrong',
  [exitCodes.config]: 'the configuration, the data folder or the address to listen on is wrong',
  [exitCodes.database]: 'the database cannot be used as it is',
  [exitCodes.newer]: 'the database is newer than this pgfresh',
};

interface Entry {
  readonly exit: number;
  readonly says: string;
  readonly next: string;
  /** For the docs, where the code that raises the error writes the message. */
  readonly about?: string;
}

const { failure, usage, config, database, newer } = exitCodes;

export const errorTable = {
  PGF_UNEXPECTED: {
    exit: failure,
    says: 'An unexpected error occurred: {problem}',
    next: 'Run the command again with --debug and report its output.',
  },
  PGF_USAGE: {
    exit: usage,
    about: 'The command line is wrong: an unknown command or option, or a value that cannot be read.',
    says: '{problem}',
    next: 'Run "pgfresh --help" to see the commands and their options.',
  },
  PGF_NODE_TOO_OLD: {
    exit: usage,
    says: 'pgfresh needs Node.js 22.18 or newer; this is {version}.',
    next: 'Install a newer version; in a clone of pgfresh, "npm start" uses its own.',
  },
  PGF_ROLE_UNKNOWN: {
    exit: usage,
    says: 'There is no role "{role}"{hint}',
    next: 'Choose from: {roles}.',
  },
  PGF_START_INVALID: {
    exit: usage,
    says: 'Invalid call of start(): {problem}',
    next: 'Correct the call; docs/guides/embedding.md has an example.',
  },
  PGF_STOP_TIMEOUT: {
    exit: failure,
    says: 'pgfresh did not stop within {seconds} s; work that was still running was abandoned.',
    next: 'Look for a job handler that ignores its abort signal, or kill the process.',
  },
  PGF_LOGIN_UNKNOWN: {
    exit: database,
    says: 'PostgreSQL has no role {logins}, so nothing can be granted to it.',
    next: 'Run "{create}", with a password if your server requires one, then repeat the command.',
  },
  PGF_DEMO_FOLDER: {
    exit: usage,
    says: 'This folder has its own configuration, {file}, and the demo would use its database.',
    next: 'Run "npx pgfresh demo" in an empty folder, or "pgfresh dev" to start what is configured here.',
  },
  PGF_CONFIG_MISSING: {
    exit: config,
    says: 'The configuration file {file} does not exist.',
    next: 'Check the path given with --config, or omit --config to use pgfresh.config.ts in the current folder.',
  },
  PGF_CONFIG_ABSENT: {
    exit: config,
    says: 'No configuration file was found in this folder, so {problem}.',
    next: 'Pass --config <file>, or run the command in the folder that has pgfresh.config.ts.',
  },
  PGF_CONFIG_THROWS: {
    exit: config,
    says: 'The configuration file {file} could not be loaded: {problem}',
    next: '{step}; "pgfresh config --debug" shows where it failed.',
  },
  PGF_CONFIG_INVALID: {
    exit: config,
    says: '{file}: {problem}',
    next: 'Correct the value; "pgfresh config" shows every setting and where it comes from.',
  },
  PGF_DEV_FAILED: {
    exit: config,
    says: 'The dev function in {file} failed: {problem}',
    next: 'Correct the function; --debug shows where it failed. "pgfresh run" does not call it.',
  },
  PGF_NOTHING_YET: {
    exit: database,
    says: 'There is no database yet: the folder {folder} has none, and DATABASE_URL is not set.',
    next: 'Run "pgfresh dev", which creates a database, or set DATABASE_URL.',
  },
  PGF_DATA_DIR_UNWRITABLE: {
    exit: config,
    says: 'Cannot write to the data folder {folder}: {problem}',
    next: 'Make it writable, or choose another one with --data-dir or PGFRESH_DATA_DIR.',
  },
  PGF_PORT_UNAVAILABLE: {
    exit: config,
    says: 'Cannot listen on {address}: {problem}',
    next: 'Choose another address with --host and --port, or stop the process that uses this one.',
  },
  PGF_PUBLIC_WITHOUT_TOKEN: {
    exit: config,
    says: 'Refusing to listen on {host}, which other machines can reach, without a token.',
    next: 'Set PGFRESH_TOKEN to a secret of 16 characters or more, or listen on 127.0.0.1.',
  },
  PGF_TOKEN_TOO_SHORT: {
    exit: config,
    says: 'The token in {file} has {found} characters; at least {shortest} are required.',
    next: 'Delete the file, so that the next start generates a new token, or set PGFRESH_TOKEN.',
  },
  PGF_EMBEDDED_MISSING: {
    exit: database,
    says: 'There is no embedded PostgreSQL for {platform}.',
    next: 'Set DATABASE_URL to PostgreSQL 15 or newer. On Linux and macOS, "npm install" without --omit=optional installs the embedded one.',
  },
  PGF_EMBEDDED_FAILED: {
    exit: database,
    says: 'The embedded PostgreSQL did not start ({step}). Its output: {stderr}',
    next: 'See the server log at {log}. If you do not need the data in {folder}, delete that folder and start again.',
  },
  PGF_EMBEDDED_IN_USE: {
    exit: database,
    says: 'The data folder {folder} is in use by the pgfresh process {pid}.',
    next: 'Stop that process, or start this one with another folder (--data-dir). To run both on one database, set DATABASE_URL: docs/production/deploy.md#the-embedded-postgresql shows how.',
  },
  PGF_EMBEDDED_OTHER_VERSION: {
    exit: database,
    says: 'The data folder {folder} was created by PostgreSQL {found}; this pgfresh includes PostgreSQL {expected}.',
    next: 'Dump it with the old version and restore the dump into a new folder, or start with another folder (--data-dir).',
  },
  PGF_EMBEDDED_NO_USER: {
    exit: database,
    says: 'PostgreSQL refuses to run as root, and there is no user "postgres" or "nobody" to run it as.',
    next: 'Start pgfresh as a normal user, create a user "postgres", or set DATABASE_URL.',
  },
  PGF_DATABASE_URL_INVALID: {
    exit: config,
    says: 'DATABASE_URL is not a PostgreSQL address: {problem}',
    next: 'Write it as postgres://user:password@host:5432/database.',
  },
  PGF_LISTEN_URL: {
    exit: database,
    says: 'Cannot listen on listenUrl: {problem}',
    next: 'Set PGFRESH_LISTEN_URL to the same PostgreSQL server as databaseUrl, without a transaction pooler, or remove it.',
  },
  PGF_DATABASE_UNREACHABLE: {
    exit: database,
    says: 'No PostgreSQL answers at {address}: {problem}',
    next: 'Check the address in DATABASE_URL and that the server is running; remove DATABASE_URL to use the embedded one.',
  },
  PGF_DATABASE_LOGIN: {
    exit: database,
    says: 'PostgreSQL at {address} refused the login: {problem}',
    next: "Check user, password and database name in DATABASE_URL, and the server's pg_hba.conf.",
  },
  PGF_DATABASE_TLS: {
    exit: database,
    says: 'PostgreSQL at {address} and pgfresh do not agree on TLS: {problem}',
    next: 'If the server requires TLS (hostssl in its pg_hba.conf), add ?sslmode=require (or verify-full with sslrootcert=…) to DATABASE_URL; if it does not offer TLS, add ?sslmode=disable.',
  },
  PGF_DATABASE_TOO_OLD: {
    exit: database,
    says: 'PostgreSQL at {address} is version {found}, and pgfresh needs 15 or newer.',
    next: 'Upgrade the server, or remove DATABASE_URL to use the embedded one.',
  },
  PGF_DATABASE_STANDBY: {
    exit: database,
    says: 'PostgreSQL at {address} is a standby, which is read-only.',
    next: 'Point DATABASE_URL at the primary.',
  },
  PGF_DATABASE_RIGHTS: {
    exit: database,
    says: 'The login "{user}" lacks a right that pgfresh needs: {problem}',
    next: 'Run as {who}: {grant}',
  },
  PGF_DATABASE_LOST: {
    exit: database,
    says: 'The connection to PostgreSQL was lost: {problem}',
    next: 'Check that the server is running. Nothing was committed.',
  },
  PGF_COMMIT_UNKNOWN: {
    exit: database,
    says: 'PostgreSQL did not confirm a commit, which may or may not have happened: {problem}',
    next: 'Check the data before you repeat the operation.',
  },
  PGF_TRANSACTION_LEFT: {
    exit: database,
    says: 'A statement left a transaction open. Its connection was closed, which rolled the transaction back.',
    next: 'Send BEGIN, the statements and COMMIT as one text, or write a function: separate statements may use different connections.',
  },
  PGF_SCHEMA_FOREIGN: {
    exit: database,
    says: 'This login cannot trust the schemas of pgfresh in this database: {problem}',
    next: 'Migrate with the login that owns the schemas. If they were not created for pgfresh, rename or drop them.',
  },
  PGF_MIGRATION_FAILED: {
    exit: database,
    says: 'The migration {migration} failed and was rolled back: {problem}',
    next: 'Run "pgfresh migrate --debug" to see the statement.',
  },
  PGF_MIGRATION_CHANGED: {
    exit: database,
    says: 'The migration {migration} was applied to this database, and its file has changed since.',
    next: 'Restore the file (reinstall pgfresh), and put the change into a new migration.',
  },
  PGF_MIGRATION_NEWER: {
    exit: newer,
    says: 'A newer pgfresh migrated this database to {found}; this one knows migrations up to {known}.',
    next: 'Upgrade this pgfresh to the version that migrated the database.',
  },
  PGF_MIGRATION_PENDING: {
    exit: database,
    says: 'This database lacks {count} of the migrations that this pgfresh needs.',
    next: 'Run "pgfresh migrate" first, or start with --migrate.',
  },
  PGF_MIGRATION_LOCKED: {
    exit: database,
    says: 'Another process has been migrating this database for more than {seconds} s.',
    next: 'Wait for it, or look for it in pg_stat_activity (application_name "pgfresh migrate").',
  },
  PGF_MIGRATION_BUSY: {
    exit: database,
    says: 'Nothing was changed: for {seconds} s, other transactions held locks that the migration needs.',
    next: 'Look for long transactions in pg_stat_activity (xact_start) and end them, then migrate again.',
  },
  PGF_BUILD_REPLACED: {
    exit: newer,
    says: 'Another build of pgfresh {version} replaced the functions of this build in the database, at {at}.',
    next: 'Start the newer build. To reinstall the functions of this one, run "delete from pgfresh_engine.installation;" first.',
  },
  PGF_UPGRADE_BLOCKED: {
    exit: database,
    says: 'Nothing was changed: the upgrade drops or replaces objects that your own objects depend on: {names}',
    next: 'Drop your objects, run "pgfresh migrate", and create them again. For views, "pgfresh migrate --sql" prints these statements, and "pgfresh migrate --recreate-dependants" runs them.',
  },
  PGF_UPGRADE_NAME_TAKEN: {
    exit: database,
    says: 'Nothing was changed: this version creates objects whose names your own objects have: {names}',
    next: 'Rename yours, or move them to your own schema, then run "pgfresh migrate" again.',
  },
  PGF_UPGRADE_RUNNING: {
    exit: database,
    says: 'Nothing was changed: {jobs} jobs of {names} were still running after {seconds} s.',
    next: 'Stop these processes, which finishes or returns their jobs, then run "pgfresh migrate" again.',
  },
  PGF_UPGRADE_DEPENDANT: {
    exit: database,
    says: 'Nothing was changed: the view {name} could not be dropped or created again: {problem}',
    next: 'Drop it, run "pgfresh migrate", and create it again for the new version.',
  },
  PGF_UPGRADE_PROCESSES: {
    exit: database,
    says: 'Nothing was changed: after {seconds} s, these processes had not stopped for the upgrade: {names}.',
    next: 'Stop them, then run "pgfresh migrate" again. To stay on the old version, start the processes that did stop.',
  },
  PGF_DUTY_RIGHT: {
    exit: database,
    says: '{problem}',
    next: 'Run "pgfresh migrate --grants" with the role of the process and its login; docs/production/logins.md has the roles.',
  },
  PGF_PROCESS_OUTDATED: {
    exit: newer,
    says: '{problem}',
    next: 'Start a newer version of pgfresh. If an upgrade is under way, wait until it has ended.',
  },
  PGF_UPGRADE_INCOMPLETE: {
    exit: database,
    says: 'Nothing was changed: after the upgrade, these objects would be missing or different from what this version expects: {names}',
    next: 'Report the list. In a clone of pgfresh, "npm run docs" updates the expected list (sql/manifest.json).',
  },
  PGF_UNINSTALL_BLOCKED: {
    exit: database,
    says: 'Nothing was dropped, because your own data would be dropped too: {names}',
    next: 'Move tables out of the schemas of pgfresh, change the type of columns, or drop them. Then uninstall again.',
  },
  PGF_UNINSTALL_UNCONFIRMED: {
    exit: usage,
    says: 'Nothing was dropped, because --yes was not given.',
    next: 'Read the list above, then run "pgfresh migrate uninstall --yes".',
  },
  PGF_TYPE_MANAGED_BY_SQL: {
    exit: config,
    says: 'The data type "{type}" is in the configuration, but its row in the registry is managed by SQL and is left alone.',
    next: "Take it out of the configuration, or hand the row over with: update pgfresh.data_type_registry set managed_by = 'config' where data_type = '{type}'.",
  },
  PGF_TYPE_NEEDED: {
    exit: config,
    says: 'The data type "{type}" is no longer in the configuration, but "{by}", which is managed by SQL, depends on it.',
    next: 'Put it back, or first remove it from depends_on of that row in pgfresh.data_type_registry.',
  },
  PGF_TYPE_REFUSED: {
    exit: config,
    says: 'The data type "{type}" of the configuration cannot be registered, and nothing was changed: {problem}',
    next: 'Correct the data type or what it names, then run the command again.',
  },
  PGF_JOB_MANAGED_BY_SQL: {
    exit: config,
    says: 'The job "{job}" is in the configuration, but its row in scheduled_jobs is managed by SQL and is left alone.',
    next: "Take it out of the configuration, or hand the row over with: update pgfresh.scheduled_jobs set managed_by = 'config' where name = '{job}'.",
  },
  PGF_JOB_REFUSED: {
    exit: config,
    says: 'The job "{job}" of the configuration cannot be registered, and nothing was changed: {problem}',
    next: 'Correct the job or what it names, then run the command again. To have "pgfresh dev" create a function, do so in dev of pgfresh.config.ts: docs/guides/scheduling.md shows how.',
  },
  PGF_JOB_FAILING: {
    exit: failure,
    says: 'The job "{job}" fails: {problem}',
    next: 'See its runs with "pgfresh jobs history {job} --state failed"; --json adds details such as the stack or the SQLSTATE.',
  },
  PGF_JOB_LATE: {
    exit: failure,
    says: 'The job "{job}" is late: {problem}',
    next: 'Start a scheduler with "pgfresh run --roles scheduler", or raise schedulerConcurrency; see what runs with "pgfresh jobs show {job}".',
  },
  PGF_ROW_MISMATCH: {
    exit: failure,
    says: 'The schema of a data type does not match its table: {problem}',
    next: 'Change the schema or the table, as the finding of "pgfresh check" says.',
  },
  PGF_REFUSED_UNKNOWN: {
    exit: usage,
    says: 'There is no refused answer {id}; only the newest of each data type are kept.',
    next: 'List the refused answers with "pgfresh refused list".',
  },
  PGF_FETCHER_MISSING: {
    exit: config,
    says: 'The data type "{type}" cannot be fetched by this configuration: {problem}. {next}',
    next: 'Correct the data type in pgfresh.config.ts, or its table; docs/guides/data-types.md shows how.',
  },
  PGF_RUN_TOO_LONG: {
    exit: failure,
    says: 'The run of "{name}" was stopped after {limit}.',
    next: 'Do less work per run, or raise maxRun.',
  },
  // Errors for clients of the HTTP server.
  PGF_HTTP_TOKEN: {
    exit: failure,
    says: 'This request needs the token of the server.',
    next: 'Send "Authorization: Bearer <token>". The token is PGFRESH_TOKEN, or else the content of the file "token" in the data folder.',
  },
  PGF_HTTP_HOST: {
    exit: failure,
    says: 'The host "{host}" is not a name of this server.',
    next: 'If it is yours, add it to allowedHosts (PGFRESH_ALLOWED_HOSTS).',
  },
  PGF_HTTP_PAGE: {
    exit: failure,
    says: 'Only pages of this server may send this request.',
    next: 'Open the page at the address of this server.',
  },
  PGF_HTTP_NOT_FOUND: {
    exit: failure,
    says: 'There is nothing at {path}.',
    next: 'Check the path, and that this process runs the role that serves it: /live needs the gateway, /status and /api the console. docs/production/monitor.md#over-http lists all paths.',
  },
  PGF_HTTP_CLIENT: {
    exit: failure,
    says: 'The client for browsers is not built.',
    next: 'Run "npm run build" in the clone of pgfresh.',
  },
  PGF_HTTP_FAILED: {
    exit: failure,
    says: 'The server failed unexpectedly.',
    next: 'See the log of the server for the reason.',
  },
  PGF_HTTP_UNAVAILABLE: {
    exit: failure,
    says: 'The database is not answering.',
    next: 'Try again in a moment; /readyz?verbose has details.',
  },
  // Errors for clients of the gateway; docs/reference/protocol.md says where.
  PGF_LIVE_TOKEN: {
    exit: failure,
    says: 'A user token is required: {problem}',
    next: 'Log in again and connect with the new token; docs/guides/access.md says where it goes and how the server checks it.',
  },
  PGF_LIVE_ORIGIN: {
    exit: failure,
    says: 'Pages of {origin} may not connect here.',
    next: 'If they are yours, add the site to gateway.origins of the configuration.',
  },
  PGF_LIVE_FORBIDDEN: {
    exit: failure,
    says: 'You may not view {pair}.',
    next: 'Ask the operator of the server; authorize in its configuration decides.',
  },
  PGF_LIVE_UNDECIDED: {
    exit: failure,
    says: 'Could not check access to {pair}: {problem}',
    next: 'Ask for the pair again in a moment. The log of the server has the reason.',
  },
  PGF_LIVE_PRIVATE: {
    exit: failure,
    says: 'The data type "{type}" shows each user their own rows, and {problem}.',
    next: 'Ask the operator of the server; gateway.rls in its configuration names the role that reads rows.',
  },
  PGF_LIVE_ROLE: {
    exit: config,
    says: 'This role cannot be used to read rows: {problem}',
    next: 'Ask the operator of the server; "pgfresh check" says what to do.',
  },
  PGF_LIVE_PROTOCOL: {
    exit: failure,
    says: 'This server speaks version {known} of its protocol, and the client {got}.',
    next: 'Send hello with "protocol": {known} first; docs/reference/protocol.md says what follows.',
  },
  PGF_LIVE_MESSAGE: {
    exit: failure,
    says: 'The message cannot be understood: {problem}',
    next: 'Send it as docs/reference/protocol.md shows. Nothing of it was done.',
  },
  PGF_LIVE_TOO_LARGE: {
    exit: failure,
    says: 'The message is larger than {limit} bytes.',
    next: 'Send the wanted pairs in several messages: one want, then add.',
  },
  PGF_LIVE_TOO_FAST: {
    exit: failure,
    says: 'More than {limit} messages per second were received.',
    next: 'Combine changes into fewer messages, and reconnect.',
  },
  PGF_LIVE_TOO_MANY_CONNECTIONS: {
    exit: failure,
    says: 'There are {limit} connections of {whose} already.',
    next: 'Close connections that are not needed; one per page is enough.',
  },
  PGF_LIVE_TOO_MANY_PAIRS: {
    exit: failure,
    says: '{whose} may view {limit} pairs at a time.',
    next: 'Drop pairs that are no longer on the screen.',
  },
  PGF_LIVE_TOO_MANY_NEW_PAIRS: {
    exit: failure,
    says: '{pair} was never requested before, and you requested {limit} such pairs within a minute.',
    next: 'Ask again in a minute.',
  },
  PGF_LIVE_TOO_MANY_REFRESHES: {
    exit: failure,
    says: 'You requested {limit} refreshes within a minute.',
    next: 'Wait: a viewed pair is refreshed automatically when it is due.',
  },
  PGF_LIVE_REFRESH_FAILED: {
    exit: failure,
    says: 'The last refresh failed.',
    next: 'It is retried automatically; operators see the reason with "pgfresh explain".',
  },
  PGF_LIVE_SLOW: {
    exit: failure,
    says: 'The client has not read its messages for {seconds} s.',
    next: 'Reconnect with the versions that you have.',
  },
  PGF_LIVE_BUSY: {
    exit: failure,
    says: 'The server cannot accept more pairs right now.',
    next: 'Try again in a few seconds.',
  },
  PGF_LIVE_STOPPING: {
    exit: failure,
    says: 'This server is stopping.',
    next: 'Reconnect; another gateway will accept you.',
  },
  PGF_LIVE_SESSION: {
    exit: failure,
    says: 'There is no event stream with this name for this user.',
    next: 'Open /live/events again and take the session from its first message.',
  },
  PGF_GATEWAY_SECRET: {
    exit: config,
    says: 'The secret of gateway.jwt cannot be used: {problem}',
    next: 'Use a secret of 32 characters or more, the same one that signs the tokens.',
  },
  // Errors of the SQL functions: SQLSTATE PGF01, with the code before the message.
  PGF_ARGUMENT_INVALID: {
    exit: failure,
    about: 'An SQL function was called with an argument that it does not accept.',
    says: '{problem}',
    next: 'Correct the argument; docs/reference/sql.md says what each function takes.',
  },
  PGF_KEY_INVALID: {
    exit: failure,
    about: 'A key is empty, too long, or contains characters that cannot be stored.',
    says: '{problem}',
    next: 'Pass the key as the provider writes it, for instance AAPL.',
  },
  PGF_KEY_UNKNOWN: {
    exit: failure,
    about: 'The data type has no such key: it is not in its table of keys, or does not match its pattern.',
    says: '{problem}',
    next: 'Pass a key of the data type; its registry row says which there are (key_table, key_pattern).',
  },
  PGF_TYPE_UNKNOWN: {
    exit: failure,
    about: 'There is no data type with this name.',
    says: '{problem}',
    next: 'See the known ones with: select data_type from pgfresh.data_type_registry.',
  },
  PGF_SOURCE_UNKNOWN: {
    exit: failure,
    about: 'There is no source with this name.',
    says: '{problem}',
    next: 'See the known ones with: select name from pgfresh.sources.',
  },
  PGF_REGISTRY_INVALID: {
    exit: config,
    about: 'A row of the registry is wrong, or names something that does not exist.',
    says: '{problem}',
    next: 'Correct the row of pgfresh.data_type_registry, or what it names; the hint of the error says how.',
  },
  PGF_CRON_INVALID: {
    exit: usage,
    says: 'The cron expression {expression} cannot be read: {problem}',
    next: 'Write minute, hour, day of month, month and day of week, such as "30 2 * * MON-FRI", or a word such as @daily; docs/reference/cron.md has the rest.',
  },
  PGF_CRON_NEVER: {
    exit: usage,
    says: 'The cron expression "{expression}" has no occurrence in {zone} within {years} years.',
    next: 'Choose days that exist; "pgfresh cron explain" shows when an expression runs.',
  },
  PGF_ZONE_UNKNOWN: {
    exit: usage,
    says: 'There is no time zone {zone}{hint}',
    next: 'Use a name of the IANA database, such as UTC or America/New_York.',
  },
  PGF_JOB_INVALID: {
    exit: config,
    about: 'A row of pgfresh.scheduled_jobs is wrong, or names something that does not exist.',
    says: '{problem}',
    next: 'Correct the row of pgfresh.scheduled_jobs, or what it names; the hint of the error says how.',
  },
  PGF_JOB_UNKNOWN: {
    exit: failure,
    about: 'There is no scheduled job with this name.',
    says: '{problem}',
    next: 'See the known ones with "pgfresh jobs list", or in SQL: select name from pgfresh.scheduled_jobs.',
  },
  PGF_JOB_RIGHT: {
    exit: failure,
    about: 'The login may not change this job.',
    says: '{problem}',
    next: 'Ask a member of the role that owns the job.',
  },
  PGF_JOB_RESULT: {
    exit: failure,
    about: 'The function or handler of a job returned something other than the expected result.',
    says: '{problem}',
    next: 'Return success, message and, if you like, details from the function or the handler; docs/guides/scheduling.md shows how.',
  },
  PGF_STANDBY: {
    exit: database,
    about: 'A function was called on a standby, which is read-only.',
    says: '{problem}',
    next: 'Connect to the primary: decisions are made by its clock.',
  },
  PGF_RESTORE_OWNERS: {
    exit: database,
    about: 'The database was restored without the owners or rights of pgfresh.',
    says: '{problem}',
    next: 'Run "pgfresh migrate" as the owner of the schema, which restores owners and rights.',
  },
  PGF_VIEWER_UNKNOWN: {
    exit: failure,
    about: 'The session does not say which user is viewing.',
    says: '{problem}',
    next: 'Let the API set request.jwt.claims, or set pgfresh.user_id where the session is trusted.',
  },
  PGF_VIEWER_OTHER: {
    exit: failure,
    about: 'A user was named who is not the user of the session.',
    says: '{problem}',
    next: 'Omit the user, which is taken from the session.',
  },
  PGF_TOO_MANY_CALLS: {
    exit: failure,
    about: 'A viewer called the functions of pgfresh too often within a minute.',
    says: '{problem}',
    next: 'Call once per minute and pair; a new minute starts a new count.',
  },
  PGF_TOO_MANY_SUBSCRIPTIONS: {
    exit: failure,
    about: 'A viewer has too many subscriptions.',
    says: '{problem}',
    next: 'Remove subscriptions that are no longer on the screen.',
  },
  PGF_RUN_UNKNOWN: {
    exit: failure,
    about: 'There is no run with this id.',
    says: '{problem}',
    next: 'See the runs with: select id from pgfresh.scheduled_job_runs; old ones are deleted.',
  },
  PGF_LEASE_LOST: {
    exit: failure,
    about: 'The lease of a worker or another process has ended, and its jobs were given to others.',
    says: '{problem}',
    next: 'Register the worker again and drop the jobs it had claimed: other workers have them now.',
  },
  PGF_LOCK_LOST: {
    exit: failure,
    about: 'A lease on named work has ended, or another process holds it.',
    says: '{problem}',
    next: 'Write nothing more under this lease: another process may hold it now. If this happens often, the lease is too short or the process too busy to renew it.',
  },
} as const satisfies Record<string, Entry>;
