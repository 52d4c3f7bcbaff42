export { Gateway, type GatewayOptions } from './gateway.ts';
export type { GatewaySettings } from './settings.ts';
