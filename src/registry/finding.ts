/** The result of one check of the registry, shown by `pgfresh check`. */
export interface RegistryFinding {
  readonly name: string;
  readonly state: 'ok' | 'warning' | 'fatal';
  readonly detail: string;
  readonly code?: string;
  readonly next?: string;
}
