/**
 * The contracts that have no test yet, each with what it waits for.
 * A number that is new starts here. Otherwise this list only shrinks: a number leaves it with the first test named after it.
 */
export const pending: Readonly<Record<string, string>> = {
  '20': "the ESLint plugin for users' fetchers",
  '24': "others' code runs with others' rights: trigger functions, casts, operators, defaults, policies and gates",
  '26': 'fixed sentences for viewers, and redaction where an error is made',
  '28': 'rate limits that hold while a clock is moved',
  '30': 'every condition as a signal with a code, a row, a metric, a rule and a page of the runbook',
  '34': 'versions that name their database, and rows that do not wait for explanations',
};
