export { askForRefresh, type AskedRefresh } from './asked-refresh.ts';
export { explainPair, type Explanation } from './explanation.ts';
export { Planner, type PlannerOptions } from './planner.ts';
export { plannerStatement } from './planner-call.ts';
export { activities, dataStates, reasons, type Activity, type DataState, type Reason } from './pair-state.ts';
export { sweepJob } from './sweep.ts';
