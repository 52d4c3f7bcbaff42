import { allowances } from '../allowances.ts';
import { bystander } from '../cast.ts';
import type { Call } from '../provider.ts';
import type { World } from '../world.ts';

/** Judged at each call, in the moment in which it arrives. */
export function judgeCall(world: World, call: Call): void {
  const { source, type, key } = call;
  if (type === bystander.name) return;
  const { journal, wants } = world;
  if (!wants.isWanted(type, key))
    journal.violated(
      'nothing is called for a pair that no one wants',
      { type, key },
      `${source} was called for ${type} ${key}: ${wants.describe(type, key)}`,
    );
  const unlisted = type === 'quote' ? wants.unlistedSince.get(key) : undefined;
  if (unlisted !== undefined && call.at - unlisted > allowances.unlisted)
    journal.violated(
      'nothing is called for a key that is not listed',
      { type, key },
      `${type} ${key} was called ${Math.round((call.at - unlisted) / 1000)} s after the key had gone`,
    );
  const paused = world.pausedSince.get(source);
  if (paused !== undefined && call.at - paused > allowances.pause)
    journal.violated(
      'a source that is paused is not called',
      { source, type, key },
      `${source} was called for ${type} ${key} ${Math.round((call.at - paused) / 1000)} s after its pause`,
    );
  const running = [...world.processes.values(), ...world.ended].find(({ tag }) => tag === call.process);
  const stopping = running?.endAskedAt;
  if (stopping !== undefined && call.at - stopping > allowances.stop && call.manner !== 'redirected') {
    const after = world.provider.calls.filter(
      (one) => one.process === call.process && one.at - stopping > allowances.stop,
    );
    if (after.length >= 3)
      journal.violated(
        'a process that stops begins no calls',
        { source },
        `${call.process} made ${after.length} calls, the last ${Math.round((call.at - stopping) / 100) / 10} s after SIGTERM`,
      );
  }
}
