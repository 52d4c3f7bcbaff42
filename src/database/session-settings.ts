/**
 * What every session of ours has set: how long a statement may take, and how soon the server notices that we are gone
 * without a word, so that what we have locked is free again. Where its system cannot do that, the server leaves it out.
 */
export function sessionSettings(statementTimeoutMs: number): string {
  const settings = {
    statement_timeout: statementTimeoutMs,
    tcp_user_timeout: 20_000,
    tcp_keepalives_idle: 10,
    tcp_keepalives_interval: 5,
    tcp_keepalives_count: 3,
  };
  return Object.entries(settings)
    .map(([name, value]) => `set ${name} = ${value}`)
    .join('; ');
}
