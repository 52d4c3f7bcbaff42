import type { ResolvedConfig } from '../config/index.ts';
import type { Events } from '../events/index.ts';

/** Environment variables that look like settings and are none. */
export function warnOfMisspelt(events: Events, misspelt: ResolvedConfig['misspelt']): void {
  for (const { variable, message, next } of misspelt)
    events.emit({ type: 'warning', code: 'setting_misspelt', subject: variable, message, next });
}
