/**
 * Settings of all our sessions: the statement timeout, and how soon the server notices that we vanished,
 * so that our locks are released. Servers whose system cannot do that ignore the setting.
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
