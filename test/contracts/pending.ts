const plugin = "the ESLint plugin for users' fetchers";

/**
 * The contracts that have no test yet, each with the part that brings it.
 * This list only shrinks: a number leaves it with the first test named after it.
 */
export const pending: Readonly<Record<string, string>> = {
  '20': plugin,
};
