import { expect, it } from 'vitest';
import { Service, stopAll, thenStop } from '../../src/lifecycle/index.ts';

class Recorder extends Service {
  readonly name: string;
  readonly log: string[];
  readonly starting = Promise.withResolvers<void>();
  stopFails = false;

  constructor(name: string, log: string[]) {
    super();
    this.name = name;
    this.log = log;
  }

  get stopAsked(): boolean {
    return this.stopSignal.aborted;
  }

  protected async onStart(): Promise<void> {
    this.log.push(`${this.name} starts`);
    await this.starting.promise;
  }

  protected async onStop(): Promise<void> {
    this.log.push(`${this.name} stops`);
    if (this.stopFails) throw new Error(`${this.name} does not stop`);
  }
}

it('starts once and stops once, however often it is asked', async () => {
  const service = new Recorder('a', []);
  service.starting.resolve();
  await Promise.all([service.start(), service.start()]);
  await Promise.all([service.stop(), service.stop()]);
  await service.stop();
  expect(service.log).toEqual(['a starts', 'a stops']);
});

it('may be stopped before it starts, and then never starts', async () => {
  const service = new Recorder('a', []);
  await service.stop();
  await expect(service.start()).rejects.toThrow('does not start again');
  expect(service.log).toEqual([]);
});

it('waits for a start under way, tells it to hurry, and then stops', async () => {
  const service = new Recorder('a', []);
  const started = service.start();
  const stopped = service.stop();
  expect(service.stopAsked).toBe(true);
  expect(service.log).toEqual(['a starts']);
  service.starting.resolve();
  await Promise.all([started, stopped]);
  expect(service.log).toEqual(['a starts', 'a stops']);
});

it('stops what failed to start, since it may hold something', async () => {
  const service = new Recorder('a', []);
  service.starting.reject(new Error('no'));
  await expect(service.start()).rejects.toThrow('no');
  await service.stop();
  expect(service.log).toEqual(['a starts', 'a stops']);
});

it('stops all in reverse order, also after a failure, and reports it', async () => {
  const log: string[] = [];
  const services = ['a', 'b', 'c'].map((name) => new Recorder(name, log));
  for (const service of services) {
    service.starting.resolve();
    await service.start();
  }
  services[1]!.stopFails = true;
  await expect(stopAll(services)).rejects.toThrow('b does not stop');
  expect(log.slice(3)).toEqual(['c stops', 'b stops', 'a stops']);
});

it('sound 6: tells all of them before it waits for the first', async () => {
  const services = ['a', 'b', 'c'].map((name) => new Recorder(name, []));
  for (const service of services) void service.start();
  const stopped = stopAll(services);
  expect(services.map(({ stopAsked }) => stopAsked)).toEqual([true, true, true]);
  for (const { starting } of services) starting.resolve();
  await stopped;
});

it.each([
  ['the result', false, false, 'done'],
  ["the stop's failure", false, true, 'does not stop'],
  ["the work's failure", true, false, 'no'],
  ["the work's failure rather than the stop's", true, true, 'no'],
])('stops after the work and tells %s', async (_name, workFails, stopFails, expected) => {
  let stops = 0;
  const work = workFails ? Promise.reject(new Error('no')) : Promise.resolve('done');
  const told = await thenStop(work, async () => {
    stops++;
    if (stopFails) throw new Error('does not stop');
  }).catch((error: unknown) => (error as Error).message);
  expect([told, stops]).toEqual([expected, 1]);
});
