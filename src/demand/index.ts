export { NodeDemand, type NodeDemandOptions } from './node-demand.ts';
