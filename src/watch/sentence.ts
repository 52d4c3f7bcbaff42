import type { EventOf, EventType, PgfreshEvent } from '../events/index.ts';

export type Level = 'debug' | 'info' | 'warn' | 'error';

interface Sentence {
  readonly level: Level;
  readonly text: string;
}

type Sentences = { readonly [Type in EventType]: (event: EventOf<Type>) => Sentence };

const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`;
const info = (text: string): Sentence => ({ level: 'info', text });
const warn = (text: string): Sentence => ({ level: 'warn', text });
const error = (text: string): Sentence => ({ level: 'error', text });
const debug = (text: string): Sentence => ({ level: 'debug', text });

/** The log line of each event. Total, so that a new event cannot be forgotten. */
const sentences: Sentences = {
  'process.started': ({ version, roles }) => info(`pgfresh ${version} runs ${roles.join(', ')}`),
  'process.stopping': ({ reason }) => info(`stopping: ${reason}`),
  'process.stopped': () => info('stopped'),
  'database.starting': ({ folder, fresh }) =>
    info(`${fresh ? 'creating' : 'starting'} the embedded PostgreSQL in ${folder}`),
  'database.ready': ({ kind, address, version, ms }) =>
    info(`${kind} PostgreSQL ${version} at ${address} ready in ${Math.round(ms)} ms`),
  'database.server_died': ({ problem }) =>
    warn(`the embedded PostgreSQL ended by itself and is started again: ${problem}`),
  'database.connection_lost': ({ problem }) => warn(`a database connection was lost: ${problem}`),
  'transaction.retried': ({ label, failure, attempt }) => debug(`${label}: ${failure}, attempt ${attempt} is repeated`),
  'migration.applied': ({ name, ms }) => debug(`applied ${name} in ${Math.round(ms)} ms`),
  'schema.migrated': ({ migrations, functions, ms }) =>
    info(
      `schema: ${counted(migrations, 'migration')}, ${counted(functions, 'function file')}, ${(ms / 1000).toFixed(1)} s`,
    ),
  'registry.synced': ({ added, changed, removed, sources }) =>
    info(
      `data types as configured: ${added} added, ${changed} changed, ${removed} removed; ${counted(sources, 'source')} written`,
    ),
  'jobs.synced': ({ added, changed, disabled }) =>
    info(`jobs as configured: ${added} added, ${changed} changed, ${disabled} disabled`),
  'http.listening': ({ url, wanted, port }) =>
    port === wanted ? info(`listening at ${url}`) : warn(`port ${wanted} is taken; listening at ${url} instead`),
  'http.refused': ({ status, reason, path }) => debug(`${status} ${path}: ${reason}`),
  'http.failed': ({ method, path, problem }) => error(`${method} ${path} failed: ${problem}`),
  'planner.ran': ({ kind, ms, counts }) => {
    const found = Object.entries(counts).filter(([, count]) => count > 0);
    const text = found.map(([name, count]) => `${count} ${name.replaceAll('_', ' ')}`).join(', ') || 'nothing';
    return debug(`${kind}: ${text} in ${Math.round(ms)} ms`);
  },
  'planner.failed': ({ kind, problem }) => warn(`the planner's ${kind} failed and is tried again: ${problem}`),
  'demand.failed': ({ problem }) => warn(`counts of viewers could not be written: ${problem}`),
  'gateway.opened': ({ transport }) => debug(`a client connected (${transport})`),
  'gateway.closed': ({ transport }) => debug(`a client has gone (${transport})`),
  // Clients only see a fixed sentence, so problems that an operator must fix are logged as warnings.
  'gateway.refused': ({ code, problem }) => {
    const text = `the gateway refused something: ${code}: ${problem}`;
    return /UNDECIDED|ROLE/.test(code) ? warn(text) : debug(text);
  },
  'gateway.slow': ({ skipped }) => debug(`a client reads slowly; ${skipped} states were left out`),
  'changes.published': ({ types, ms }) => debug(`told of changes of ${types} data types in ${Math.round(ms)} ms`),
  'gateway.failed': ({ step, problem }) => warn(`the gateway's ${step} failed and is tried again: ${problem}`),
  'worker.started': ({ name, types }) =>
    info(types.length === 0 ? `worker ${name} knows no data type yet` : `worker ${name} refreshes ${types.join(', ')}`),
  'worker.failed': ({ step, problem }) => warn(`the worker's ${step} failed and is tried again: ${problem}`),
  'worker.locked': ({ dataType, locked }) =>
    locked
      ? warn(`the table of ${dataType} is locked: its answers wait, and it is not fetched`)
      : info(`the table of ${dataType} is not locked any more`),
  'worker.evicted': ({ dataType, keys }) => info(`deleted the rows of ${keys} keys of ${dataType} that nobody views`),
  'worker.lease_lost': ({ name }) => warn(`worker ${name} has lost its lease and begins anew`),
  'process.outdated': () => debug('the database asks processes of this version to stop'),
  'worker.drained': ({ finished, putBack, ms }) =>
    info(`the worker has finished ${finished} refreshes and put back ${putBack} in ${Math.round(ms)} ms`),
  'scheduler.started': ({ scheduler, handlers }) =>
    info(`scheduler ${scheduler} runs SQL jobs${handlers.length > 0 ? ` and ${handlers.join(', ')}` : ''}`),
  'scheduler.failed': ({ step, problem }) => warn(`the scheduler's ${step} failed and is tried again: ${problem}`),
  'scheduler.lease_lost': ({ scheduler }) => warn(`scheduler ${scheduler} has lost its lease and begins anew`),
  'scheduler.recovered': ({ runs }) => warn(`${runs} runs of a scheduler that is gone are started again`),
  'scheduler.drained': ({ finished, handedOver, ms }) =>
    info(`the scheduler has finished ${finished} runs and handed over ${handedOver} in ${Math.round(ms)} ms`),
  'job.ended': ({ job, attempt, outcome, message, ms, latenessMs }) => {
    const text = `job ${job}, attempt ${attempt}: ${outcome} after ${Math.round(ms)} ms, ${latenessMs} ms late: ${message}`;
    return outcome === 'succeeded' ? debug(text) : warn(text);
  },
  'job.skipped': ({ job, reason, count }) => debug(`job ${job}: ${count} slots skipped (${reason})`),
  'job.logged': ({ job, message, details }) =>
    info(`job ${job}: ${message}${details ? ` ${JSON.stringify(details)}` : ''}`),
  'refresh.ended': ({ dataType, key, outcome, ok, error: why }) => {
    const text = `${dataType} ${key}: ${outcome}${why === undefined ? '' : `: ${why}`}`;
    return ok ? debug(text) : warn(text);
  },
  'source.called': ({ source, dataType, outcome, calls, wireBytes, ms }) =>
    debug(`${source}: ${dataType} ${outcome}, ${calls} calls and ${wireBytes} bytes in ${Math.round(ms)} ms`),
  warning: ({ code, message, next }) => warn(`${message} (${code}) ${next}`),
};

export function sentenceOf(event: PgfreshEvent): Sentence {
  return (sentences[event.type] as (event: PgfreshEvent) => Sentence)(event);
}
