import { expect, it } from 'vitest';
import { createDatabase } from '../harness/database.ts';
import { campaigns } from './index.ts';

it.each(Object.entries(campaigns).filter(([, { testSteps }]) => testSteps !== 0))(
  'a part of the campaign "%s" holds',
  async (_name, campaign) => {
    const url = await createDatabase();
    const tally = await campaign.run({
      url,
      seed: 1,
      steps: campaign.testSteps ?? campaign.steps / 10,
      progress: () => {},
    });
    expect(campaign.mustMeet.filter((fate) => !tally[fate])).toEqual([]);
  },
  90_000,
);
