/**
 * A long run of steps with chances drawn from a seed. Which step meets which chance also depends on the network and the
 * scheduler, so two runs with one seed are alike, not the same. `npm run campaign -- <name>` does all of the steps;
 * `npm test` does a tenth, or as many as the campaign says.
 */
export interface Campaign {
  readonly about: string;
  readonly steps: number;
  /** Whether a step is a minute. */
  readonly goesByTime?: boolean;
  /** Fewer steps than these prove nothing; 1 if it is left out. */
  readonly fewest?: number;
  /** What the tally must hold, or the run met nothing and proved nothing. */
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
  /** How much happens at a time, where the campaign can do more or less; 1 if it is left out. */
  readonly intensity?: number | undefined;
  /** Does only the operations whose name has one of these words in it, separated by commas, where the campaign has such. */
  readonly only?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Told now and then how many steps are done, and more in words. */
  readonly progress: (done: number, detail?: string) => void;
}

/** What a campaign is there to find. Its message says everything, so no one needs its stack. */
export class CampaignFailure extends Error {
  override readonly name = 'CampaignFailure';
}

export const unitOf = ({ goesByTime }: Campaign): 'steps' | 'minutes' => (goesByTime ? 'minutes' : 'steps');
