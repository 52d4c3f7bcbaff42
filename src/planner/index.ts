export { explainPair, type Explanation } from './explanation.ts';
export { Planner, plannerStatement, type PlannerOptions } from './planner.ts';
export { reasons, type Reason } from './reasons.ts';
