import { type Samples, showNumber } from '../report.ts';
import type { Cost } from '../server.ts';
import type { Contender } from './contender.ts';
import { drain } from './drain.ts';
import { enqueue } from './enqueue.ts';
import { latency, type Latency } from './latency.ts';
import { busyName, drainName, idleName, oneByOneName, setsName } from './measure-name.ts';
import type { Plan } from './plan.ts';
import type { Stage } from './stage.ts';

/** Something that is measured of the contenders. It notes what it finds and answers it in words. */
export interface Measure {
  readonly name: string;
  fits(contender: Contender): boolean;
  take(stage: Stage): Promise<string>;
}

export function measuresOf(plan: Plan, samples: Samples): Measure[] {
  const { jobs, processes } = plan.drain;
  return [
    enqueueMeasure(plan, samples),
    ...jobs.flatMap((count) => processes.map((each) => drainMeasure(count, each, plan, samples))),
    latencyMeasure(plan, samples),
  ];
}

function enqueueMeasure(plan: Plan, samples: Samples): Measure {
  return {
    name: 'enqueue',
    fits: ({ isDefault }) => !isDefault || plan.defaults === 'all',
    async take(stage) {
      const { name } = stage.contender;
      const { oneByOne, sets } = await enqueue(stage, plan.enqueue);
      for (const [connections, perSecond] of oneByOne) {
        samples.add(oneByOneName(connections), name, 'jobs/s', perSecond);
      }
      samples.add(setsName, name, 'jobs/s', sets.perSecond);
      addCost(samples, setsName, name, sets.cost, sets.jobs);
      return [...oneByOne.values(), sets.perSecond].map(rateInWords).join(', ');
    },
  };
}

function drainMeasure(jobs: number, processes: number, plan: Plan, samples: Samples): Measure {
  const measure = drainName(jobs, processes);
  return {
    name: measure,
    fits: ({ isDefault }) => !isDefault || plan.defaults === 'all',
    async take(stage) {
      const { name } = stage.contender;
      const drained = await drain(stage, jobs, processes, plan.drain.maxSeconds);
      samples.add(measure, name, 'jobs/s', drained.perSecond);
      addCost(samples, measure, name, drained.cost, drained.jobs);
      return rateInWords(drained.perSecond) + (drained.cut ? `, cut after ${showNumber(drained.jobs)} jobs` : '');
    },
  };
}

function latencyMeasure(plan: Plan, samples: Samples): Measure {
  const { perSecond } = plan.latency.busy;
  return {
    name: `latency idle, and at ${perSecond} jobs/s`,
    fits: ({ pollsEveryMs }) => pollsEveryMs === undefined || plan.defaults === 'all',
    async take(stage) {
      const { name } = stage.contender;
      const { idle, busy } = await latency(stage, plan.latency);
      samples.add(idleName('p50'), name, 'ms', idle.p50);
      samples.add(idleName('p99'), name, 'ms', idle.p99);
      samples.add(busyName(perSecond, 'p50'), name, 'ms', busy?.p50 ?? null);
      samples.add(busyName(perSecond, 'p99'), name, 'ms', busy?.p99 ?? null);
      return `${latencyInWords(idle)}; ${busy ? latencyInWords(busy) : 'does not keep up'}`;
    },
  };
}

function addCost(samples: Samples, measure: string, name: string, { walBytes, cpuMs }: Cost, jobs: number): void {
  samples.add(`${measure}: WAL a job`, name, 'bytes', jobs === 0 ? null : walBytes / jobs);
  const cpuUs = cpuMs === null || jobs === 0 ? null : (cpuMs / jobs) * 1000;
  samples.add(`${measure}: database CPU a job`, name, 'µs', cpuUs);
}

function rateInWords(perSecond: number): string {
  return `${showNumber(perSecond)} jobs/s`;
}

function latencyInWords({ p50, p99, samples }: Latency): string {
  return `p50 ${showNumber(p50)} ms, p99 ${showNumber(p99)} ms of ${samples}`;
}
