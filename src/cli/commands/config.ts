import type { Command } from 'commander';
import { settingNames, settings } from '../../config/index.ts';
import { contextOf } from '../context.ts';
import { table } from '../output.ts';

export function addConfig(program: Command): void {
  program
    .command('config')
    .description('show every setting, its value and where it comes from')
    .action(async (_options: object, command: Command) => {
      const { output, config } = contextOf(command);
      const resolved = await config();
      const shown = settingNames.map((name) => ({
        name,
        value:
          'secret' in settings[name] && resolved.settings[name] !== undefined
            ? '(hidden)'
            : (resolved.settings[name] ?? null),
        from: resolved.origins[name],
        env: settings[name].env,
        flag: settings[name].flag.split(' ', 1)[0]!,
      }));
      for (const { message } of resolved.misspelt) output.hint(message);
      output.result({ file: resolved.file ?? null, settings: shown }, () => {
        const rows = shown.map(({ name, value, from, env, flag }) => [
          name,
          value === null ? '–' : String(value) || '–',
          from,
          env,
          flag,
        ]);
        return `${table([['setting', 'value', 'from', 'environment', 'flag'], ...rows])}\n\nConfiguration file: ${resolved.file ?? 'none'}`;
      });
    });
}
