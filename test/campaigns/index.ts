import type { Campaign } from './campaign.ts';
import { queue } from './queue.ts';
import { transactions } from './transactions.ts';

export const campaigns: Readonly<Record<string, Campaign>> = { transactions, queue };
