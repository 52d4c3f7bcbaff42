export { refuseUpgrade, type Door } from './door.ts';
export { HttpServer, type HttpOptions } from './server.ts';
export { tokenOf } from './token.ts';
