import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The files that take longest, in this order: where no earlier run tells, one of them could be the last to begin. */
const longest = [
  'examples/market/board',
  'database/embedded',
  'upgrade/restore',
  'worker/worker',
  'campaigns/campaigns',
  'queue/bad-input',
  'contracts/planning',
  'planner/bad-types',
  'upgrade/copy',
  'cli/closed-output',
  'cli/cli',
  'gateway/unresponsive-types',
  'examples/market/lies',
  'gateway/rls',
  'refresh/commit',
  'contracts/configuration',
  'worker/lanes',
];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId }: TestSpecification): number => {
      const at = longest.findIndex((name) => moduleId.endsWith(`/test/${name}.test.ts`));
      return at < 0 ? longest.length : at;
    };
    const usual = await BaseSequencer.prototype.sort.call(this, files);
    return usual.toSorted((one, other) => place(one) - place(other));
  }
}

export default defineConfig({
  // A clone is no installed package, and may not be built.
  resolve: {
    alias: [
      { find: /^pgfresh$/, replacement: new URL('src/index.ts', import.meta.url).pathname },
      { find: /^pgfresh\/client$/, replacement: new URL('client/index.ts', import.meta.url).pathname },
      { find: /^pgfresh\/react$/, replacement: new URL('client/react.ts', import.meta.url).pathname },
      { find: /^pgfresh\/client\/heartbeat$/, replacement: new URL('client/heartbeat.ts', import.meta.url).pathname },
    ],
  },
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/harness/server.ts'],
    setupFiles: ['test/harness/leaks.ts'],
    pool: 'forks',
    // They mostly wait: for times that must pass, and for processes that they start.
    maxWorkers: 4,
    sequence: { sequencer: LongestFirst },
    testTimeout: 30_000,
    hookTimeout: 60_000,
    allowOnly: false,
    retry: 0,
    // What is waited for comes at once, unless the machine is busy.
    expect: { poll: { timeout: 10_000 } },
  },
});
