import type { ResolvedConfig } from '../config/index.ts';
import type { Events } from '../events/index.ts';

/** Warns about environment variables that look like misspelt settings. */
export function warnOfMisspelt(events: Events, misspelt: ResolvedConfig['misspelt']): void {
  for (const { variable, message, next } of misspelt)
    events.emit({ type: 'warning', code: 'setting_misspelt', subject: variable, message, next });
}
