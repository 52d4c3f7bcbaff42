export { isLocal } from './guard.ts';
export { notFound, refuseUpgrade, type Mount } from './mount.ts';
export { HttpServer, type HttpOptions } from './server.ts';
export { tokenOf } from './token.ts';
