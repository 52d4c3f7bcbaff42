/** Messages from a child process to the bench. */
export type Report =
  | { readonly type: 'ready'; readonly value: unknown }
  | { readonly type: 'told'; readonly value: unknown }
  | { readonly type: 'answer'; readonly to: string; readonly value: unknown }
  | { readonly type: 'failed'; readonly problem: string };

/** Requests from the bench to a child process. */
export interface Question {
  readonly name: string;
  readonly about: unknown;
}

export function report(message: Report): void {
  process.send!(message);
}

/** Answers the bench's requests, and exits with it. */
export function serve(answers: Readonly<Record<string, (about: never) => unknown>>): void {
  // An interrupt at the terminal reaches the whole group; the bench ends its processes itself.
  for (const signal of ['SIGINT', 'SIGHUP'] as const) process.on(signal, () => {});
  process.on('disconnect', () => process.exit(1));
  process.on('uncaughtException', (error) => {
    process.send!({ type: 'failed', problem: error.stack ?? error.message } satisfies Report, () => process.exit(1));
  });
  process.on('message', ({ name, about }: Question) => void answer(name, () => answers[name]!(about as never)));
}

async function answer(to: string, find: () => unknown): Promise<void> {
  report({ type: 'answer', to, value: await find() });
}
