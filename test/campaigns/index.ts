import type { Campaign } from './campaign.ts';
import { queue } from './queue.ts';
import { transactions } from './transactions.ts';
import { workerKills } from './worker-kills.ts';

export const campaigns: Readonly<Record<string, Campaign>> = { transactions, queue, 'worker-kills': workerKills };
