export { examineGateway, examineGatewaySecret } from './auth/config-check.ts';
export { Gateway } from './gateway.ts';
export { refuse } from './http/error-response.ts';
export { admitPairs, type Admitted, type Refused, type WantedPair } from './pairs/pair-lookup.ts';
export { reasonSentences, refusalSentences, stateSentences } from './sentences.ts';
