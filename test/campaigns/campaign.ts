/**
 * A long run of steps with random choices from a seed. Which step meets which choice also depends on network and
 * scheduler, so two runs with one seed are similar, not identical. `npm run campaign -- <name>` does all of the steps;
 * `npm test` does a tenth, or as many as the campaign says.
 */
export interface Campaign {
  readonly about: string;
  readonly steps: number;
  /** Whether a step is a minute. */
  readonly goesByTime?: boolean;
  /** The fewest steps that prove anything; default: 1. */
  readonly fewest?: number;
  /** What the tally must contain for the run to prove anything. */
  readonly mustMeet: readonly string[];
  /** 0: it is too long for `npm test`. */
  readonly testSteps?: number;
  /** Whether it ends by itself, and cleans up, when its signal is aborted. */
  readonly stopsBySignal?: boolean;
  /** Does the steps on a migrated database of its own and throws at the first thing that is not as it must be. */
  readonly run: (options: CampaignOptions) => Promise<Record<string, number>>;
}

export interface CampaignOptions {
  readonly url: string;
  readonly seed: number;
  readonly steps: number;
  /** How much happens at a time, if the campaign supports it; default: 1. */
  readonly intensity?: number | undefined;
  /** Only operations whose name contains one of these comma-separated words, if the campaign has operations. */
  readonly only?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Reports progress now and then. */
  readonly progress: (done: number, detail?: string) => void;
}

/** A violation that a campaign found. Its message is complete, so its stack is not shown. */
export class CampaignFailure extends Error {
  override readonly name = 'CampaignFailure';
}

export const unitOf = ({ goesByTime }: Campaign): 'steps' | 'minutes' => (goesByTime ? 'minutes' : 'steps');
