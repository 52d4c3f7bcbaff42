export { nothingAt, refuseUpgrade, type Door } from './door.ts';
export { isLocal } from './guard.ts';
export { HttpServer, type HttpOptions } from './server.ts';
export { tokenOf } from './token.ts';
