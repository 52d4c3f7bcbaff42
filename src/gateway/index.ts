export { examineGateway, examineGatewaySecret } from './auth/config-check.ts';
export { Gateway } from './gateway.ts';
export { errorResponse } from './http/error-response.ts';
export { lookUpPairs, type PairRefusal, type RegisteredPair } from './pairs/pair-lookup.ts';
export { reasonSentences, refusalSentences, stateSentences } from './sentences.ts';
