import { styleText } from 'node:util';
import type { Command } from 'commander';
import { configFilesBelow } from '../../config/index.ts';
import { examineGateway, examineGatewaySecret } from '../../gateway/index.ts';
import { examineFetchers } from '../../refresh/index.ts';
import { examineRegistry } from '../../registry/index.ts';
import { examineJobs } from '../../schedule/index.ts';
import { examineApiKeys, examineSources } from '../../sources/index.ts';
import { examine, type Finding } from '../../watch/index.ts';
import { contextOf } from '../context.ts';

const marks = { ok: styleText('green', '✓'), warning: styleText('yellow', '!'), fatal: styleText('red', '✗') } as const;

export function addCheck(program: Command): void {
  program
    .command('check')
    .description('check the configuration, data folder, database, data types and jobs; exit 1 if anything is fatal')
    .action(async (_options: object, command: Command) => {
      const { output, config } = contextOf(command);
      const examined = await examine(config, {
        configuration: { sources: examineApiKeys, gateway: examineGatewaySecret },
        database: {
          registry: examineRegistry,
          sources: examineSources,
          worker: examineFetchers,
          jobs: examineJobs,
          gateway: examineGateway,
        },
      });
      const findings = await namingConfigs(examined);
      const fatal = findings.filter((finding) => finding.state === 'fatal').length;
      output.result({ ok: fatal === 0, findings }, () => `${findings.map(line).join('\n')}\n\n${summary(findings)}`);
      process.exitCode = fatal === 0 ? 0 : 1;
    });
}

/** Suggests configurations in folders below, if this folder has none. */
async function namingConfigs(findings: readonly Finding[]): Promise<readonly Finding[]> {
  if (!findings.some(({ code }) => code === 'PGF_CONFIG_ABSENT')) return findings;
  const files = await configFilesBelow(process.cwd());
  if (files.length === 0) return findings;
  const next = `Pass ${files.map((file) => `--config ${file}`).join(' or ')}.`;
  return findings.map((finding) => (finding.code === 'PGF_CONFIG_ABSENT' ? { ...finding, next } : finding));
}

function line({ state, name, detail, next }: Finding): string {
  return `${marks[state]} ${name}: ${detail}${next ? `\n  Next: ${next}` : ''}`;
}

function summary(findings: readonly Finding[]): string {
  const count = (state: Finding['state']): number => findings.filter((finding) => finding.state === state).length;
  const [fatal, warnings] = [count('fatal'), count('warning')];
  if (fatal > 0) return `${fatal} of ${findings.length} checks ${fatal === 1 ? 'is' : 'are'} fatal.`;
  if (warnings === 0) return 'Nothing is in the way.';
  return `Nothing is fatal; ${warnings} warning${warnings === 1 ? '' : 's'} above.`;
}
