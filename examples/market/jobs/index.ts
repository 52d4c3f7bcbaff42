import { refreshOpeningSignals } from './refresh-opening-signals.ts';

export const marketJobs = [refreshOpeningSignals];
