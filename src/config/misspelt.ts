import { nearMiss } from './near-miss.ts';
import { settingNames, settings } from './settings.ts';

/** A variable of the environment that is no setting and is nearly one. */
export interface MisspeltVariable {
  readonly variable: string;
  readonly message: string;
  readonly next: string;
}

const prefix = 'PGFRESH_';
const known = settingNames.map((name): string => settings[name].env).filter((env) => env.startsWith(prefix));

/** Variables that begin like ours and are most likely mistyped. Others may be the user's own. */
export function misspeltVariables(env: Readonly<Record<string, string | undefined>>): MisspeltVariable[] {
  return Object.keys(env).flatMap((variable) => {
    if (!variable.toUpperCase().startsWith(prefix) || known.includes(variable) || !env[variable]) return [];
    const words = known.map((name) => name.slice(prefix.length));
    const near = nearMiss(variable.slice(prefix.length), words);
    if (near === undefined) return [];
    const message = `The environment variable ${variable} is no setting of pgfresh; did you mean ${prefix}${near}?`;
    return [
      { variable, message, next: 'Correct its name, or remove it; docs/reference/configuration.md lists all of them.' },
    ];
  });
}
