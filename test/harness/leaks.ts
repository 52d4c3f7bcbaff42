import { afterAll, expect } from 'vitest';

// What a test file leaves behind would keep a user's process alive in the same way.
const watched = new Set(['Timeout', 'TCPServerWrap', 'TCPSocketWrap', 'ProcessWrap', 'FSEventWrap']);

// Runs before anything of the test file.
const before = openResources();

// Registered before any other hook, so it runs after all of them.
afterAll(async () => {
  // A closed socket leaves the list when the other side has answered and its close event has been delivered;
  // the timer by which vitest gathers its reports, when it has fired.
  const deadline = performance.now() + 8_000;
  while (leaked().length > 0 && performance.now() < deadline) await new Promise(setImmediate);
  const left = leaked();
  expect(left, `the test file left open: ${left.join(', ')}`).toEqual([]);
});

function leaked(): string[] {
  const open = openResources();
  for (const known of before) {
    const index = open.indexOf(known);
    if (index >= 0) open.splice(index, 1);
  }
  return open;
}

function openResources(): string[] {
  return process.getActiveResourcesInfo().filter((name) => watched.has(name));
}
