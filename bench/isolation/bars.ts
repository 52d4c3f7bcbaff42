import { type Bar, bar, type Figure } from '../report.ts';

export type Who = 'new' | 'connected';

export const wishName = (who: Who, percentage: number) =>
  `wish to snapshot, ${who === 'new' ? 'new viewers' : 'viewers connected before'}, p${percentage}`;
export const jobsName = 'jobs planned a second, of the other types';
export const recoveryName = (of: 'hung' | 'locked') =>
  of === 'hung' ? 'release of the hung type to its next job' : 'release of the table to the snapshot';

export function barsOf(figures: readonly Figure[]): Bar[] {
  const valueOf = (measure: string, contender: string) =>
    figures.find((figure) => figure.measure === measure && figure.contender === contender)?.value ?? Number.NaN;
  const timesQuiet = (measure: string) => valueOf(measure, 'harm') / valueOf(measure, 'quiet');
  return [
    bar(`${wishName('new', 99)}, times quiet`, timesQuiet(wishName('new', 99)), 'at most', 2),
    bar(`${wishName('connected', 99)}, times quiet`, timesQuiet(wishName('connected', 99)), 'at most', 2),
    bar(`${jobsName}, share of quiet`, timesQuiet(jobsName), 'at least', 0.95),
    bar(`${recoveryName('hung')}, ms`, valueOf(recoveryName('hung'), 'harm'), 'at most', 2_000),
    bar(`${recoveryName('locked')}, ms`, valueOf(recoveryName('locked'), 'harm'), 'at most', 2_000),
  ];
}
