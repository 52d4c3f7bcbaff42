import { defineConfig } from 'vitest/config';

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
    testTimeout: 30_000,
    hookTimeout: 60_000,
    allowOnly: false,
    retry: 0,
    // What is waited for comes at once, unless the machine is busy.
    expect: { poll: { timeout: 10_000 } },
  },
});
