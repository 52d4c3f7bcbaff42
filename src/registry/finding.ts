/** One check of the registry that was made; `pgfresh check` shows it beside its own. */
export interface RegistryFinding {
  readonly name: string;
  readonly state: 'ok' | 'warning' | 'fatal';
  readonly detail: string;
  readonly code?: string;
  readonly next?: string;
}
