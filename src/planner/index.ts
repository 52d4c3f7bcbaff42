export { explainPair, type Explanation } from './explanation.ts';
export { Planner, type PlannerOptions } from './planner.ts';
export { plannerStatement } from './planner-call.ts';
export { reasons, type Reason } from './reasons.ts';
export { sweepJob } from './sweep.ts';
