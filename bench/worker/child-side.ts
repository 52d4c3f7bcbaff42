/** What a process that the bench has started tells it. */
export type Report =
  | { readonly type: 'ready'; readonly value: unknown }
  | { readonly type: 'ended'; readonly ended: Ended }
  | { readonly type: 'answer'; readonly to: string; readonly value: unknown }
  | { readonly type: 'failed'; readonly problem: string };

/** How many jobs a process has ended, and what it had ended when the first of them did. */
export interface Ended {
  readonly jobs: number;
  readonly first: { readonly at: number; readonly jobs: number };
}

export function report(message: Report): void {
  process.send!(message);
}

/** Answers the bench's questions, and ends with it. */
export function serve(answers: Readonly<Record<string, () => unknown>>): void {
  // An interrupt at the terminal reaches the whole group; the bench ends its processes itself.
  for (const signal of ['SIGINT', 'SIGHUP'] as const) process.on(signal, () => {});
  process.on('disconnect', () => process.exit(1));
  process.on('uncaughtException', (error) => {
    process.send!({ type: 'failed', problem: error.stack ?? error.message } satisfies Report, () => process.exit(1));
  });
  process.on('message', (question: string) => void answer(question, answers[question]!));
}

async function answer(to: string, find: () => unknown): Promise<void> {
  report({ type: 'answer', to, value: await find() });
}
