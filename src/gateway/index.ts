export { admitPairs, type Admitted, type Refused, type WantedPair } from './admission.ts';
export { type Bus, type Change, type Heard } from './bus.ts';
export { PostgresBus } from './buses/postgres.ts';
export { Changes } from './changes.ts';
export { Feed, type FeedHeard } from './feed.ts';
export { Gateway } from './gateway.ts';
export { Mirror, type Watcher } from './mirror.ts';
export { readShared, type Pair, type PairState } from './pair.ts';
export { Pump } from './pump.ts';
