export { EmbeddedServer, type EmbeddedOptions } from './server.ts';
export { embeddedStatus, type EmbeddedStatus } from './status.ts';
export { runningEmbedded } from './running.ts';
