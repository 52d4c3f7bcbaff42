import type { Campaign } from './campaign.ts';
import { changes } from './changes.ts';
import { commits } from './commits.ts';
import { flood } from './flood.ts';
import { gauntlet } from './gauntlet/index.ts';
import { queue } from './queue.ts';
import { runs } from './runs/index.ts';
import { schedule } from './schedule.ts';
import { storm } from './storm.ts';
import { transactions } from './transactions.ts';
import { worker } from './worker.ts';

export const campaigns: Readonly<Record<string, Campaign>> = {
  transactions,
  queue,
  worker,
  commits,
  schedule,
  runs,
  changes,
  storm,
  flood,
  gauntlet,
};
