/** The failpoints of a worker, from its registration to its retirement. */
export const workerFailpoints = [
  'worker.after-register',
  'worker.after-catalog',
  'worker.before-claim',
  'worker.after-claim',
  'worker.before-start',
  'worker.before-ready',
  'worker.after-end',
  'worker.before-recover',
  'worker.before-drain',
  'worker.before-retire',
  'lease.before-beat',
  'refresh.before-request',
  'refresh.before-call',
  'refresh.during-call',
  'refresh.after-call',
  'refresh.after-checks',
  'commit.before-begin',
  'commit.after-fence',
  'commit.before-prune',
  'commit.after-rows',
  'commit.after-end',
  'commit.before-commit',
  'commit.after-commit',
  'commit.before-halves',
  'turn-back.before-begin',
  'turn-back.after-end',
  'turn-back.before-commit',
  'turn-back.after-commit',
] as const;

const names = ['migrate.before-commit', 'embedded.before-ready', ...workerFailpoints] as const;
const actions = ['kill', 'throw', 'hang'] as const;

/**
 * Named places where a test can make the process fail on purpose.
 *
 * `PGFRESH_FAILPOINTS="migrate.before-commit=kill,embedded.before-ready=hang"` arms them. Without the variable, that is,
 * outside of tests, `failpoint` is an empty function and costs nothing.
 */
export type FailpointName = (typeof names)[number];
type Action = (typeof actions)[number];

const armed = parseFailpoints(process.env['PGFRESH_FAILPOINTS']);

/** Checked before `await failpoint(…)` where each job passes, because awaiting nothing still costs a promise. */
export const hasFailpoints = armed.size > 0;

export const failpoint: (name: FailpointName) => void | Promise<void> = hasFailpoints ? fail : () => {};

/** Throws for unknown failpoints: a test that arms one would pass for the wrong reason. */
export function parseFailpoints(text = ''): Map<FailpointName, Action> {
  return new Map(text.split(',').filter(Boolean).map(parsePoint));
}

function parsePoint(point: string): [FailpointName, Action] {
  const [name, action] = point.split('=');
  return [known(names, name), known(actions, action)];
}

function known<Word extends string>(words: readonly Word[], given: string | undefined): Word {
  const word = words.find((one) => one === given);
  if (word === undefined) throw new Error(`PGFRESH_FAILPOINTS: expected one of ${words.join(', ')}, got "${given}"`);
  return word;
}

function fail(name: FailpointName): void | Promise<void> {
  switch (armed.get(name)) {
    case 'kill':
      process.kill(process.pid, 'SIGKILL');
      return new Promise(() => {});
    case 'throw':
      throw new Error(`failpoint ${name}`);
    case 'hang':
      // Tells the test that the failpoint was reached; the timer keeps the process alive.
      process.stderr.write(`failpoint ${name} reached\n`);
      return new Promise(() => setInterval(() => {}, 60_000));
    case undefined:
      return;
  }
}
