import { documentFaults } from './documents.ts';
import type { Fault } from './fault.ts';
import { replyFaults } from './replies.ts';
import { wireFaults } from './wires.ts';

/** Every way in which the provider can lie, with what pgfresh must make of it. */
export const faults = { ...documentFaults, ...replyFaults, ...wireFaults };

export type FaultKind = keyof typeof faults;

export function isFaultKind(name: unknown): name is FaultKind {
  return typeof name === 'string' && Object.hasOwn(faults, name);
}

export function faultOf(kind: FaultKind): Fault {
  return faults[kind];
}

export type { Fault, Outcome, SpoiltCall, Wire } from './fault.ts';
