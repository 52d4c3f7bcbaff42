import { dividendHistory } from './dividend-history.ts';
import { financialStatements } from './financial-statements.ts';
import { profile } from './profile.ts';
import { quote } from './quote.ts';
import { ratiosTtm } from './ratios-ttm.ts';

export const marketTypes = [profile, quote, financialStatements, ratiosTtm, dividendHistory] as const;
