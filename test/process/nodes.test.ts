import { randomUUID } from 'node:crypto';
import { beforeEach, describe, expect, it } from 'vitest';
import { protocol, version } from '../../src/database/index.ts';
import { NodeDemand } from '../../src/demand/index.ts';
import { Events } from '../../src/events/index.ts';
import { freezeClock } from '../harness/clock.ts';
import { createLogin } from '../harness/login.ts';
import { expectRefusal } from '../harness/refusal.ts';
import { openSession } from '../harness/session.ts';
import { QueueScene } from '../queue/scene.ts';

const scene = await QueueScene.open();
const clock = await freezeClock(scene.db);

beforeEach(() => scene.db.query('delete from pgfresh_engine.process; delete from pgfresh_engine.duty'));

const monitor = async () => {
  const { name, url } = await createLogin(scene.url, 'pgfresh_monitor');
  // The clock of a test is a table.
  await scene.db.query(`grant select on public.test_clock to ${name}`);
  return openSession(url);
};

it('nodes shows a monitor who runs: version, protocol and duties of each process', async () => {
  const holder = randomUUID();
  await scene.db.query(`select pgfresh_engine.register_process('worker', 'one', '1.2.3', 4)`);
  const demand = new NodeDemand({ db: scene.db, events: new Events(), nodeName: 'two', holder });
  await demand.start();
  await scene.db.query(
    `select pgfresh_engine.hold_duty('pump', $1::uuid, '10 seconds'), pgfresh_engine.hold_duty('planner', gen_random_uuid(), '10 seconds')`,
    [holder],
  );
  const session = await monitor();
  const nodes = () =>
    session.query('select name, kind, version, protocol, duties from pgfresh.nodes order by kind, name');
  const gateway = { name: 'two', kind: 'gateway', version, protocol: protocol.own, duties: ['pump'] };
  const worker = { name: 'one', kind: 'worker', version: '1.2.3', protocol: 4, duties: [] };
  expect(await nodes()).toEqual([
    gateway,
    { name: null, kind: 'planner', version: null, protocol: null, duties: ['planner'] },
    worker,
  ]);
  await clock.advance('11 seconds');
  expect(await nodes()).toEqual([{ ...gateway, duties: [] }, worker]);
  await demand.stop();
});

describe('a duty', () => {
  const hold = async (role: string, duty: string) => {
    const { name, url } = await createLogin(scene.url, role);
    await scene.db.query(`grant select on public.test_clock to ${name}`);
    return (await openSession(url)).query(
      `select pgfresh_engine.hold_duty('${duty}', gen_random_uuid(), '1 second') as held`,
    );
  };
  it.each([
    ['pgfresh_planner', 'planner'],
    ['pgfresh_gateway', 'pump'],
  ])('of %s is %s, and a process with another role is refused', async (role, duty) => {
    expect(await hold(role, duty)).toEqual([{ held: true }]);
    const other = role === 'pgfresh_planner' ? 'pgfresh_gateway' : 'pgfresh_planner';
    const { message } = await expectRefusal(hold(other, duty), 'PGF_DUTY_RIGHT');
    expect(message).toContain(`the duty ${duty} is for members of ${role}`);
    await expect(hold('pgfresh_worker', duty)).rejects.toMatchObject({ code: '42501' });
  });
});

describe('a process whose protocol is below the minimum', () => {
  const least = (set: string) => scene.db.query(`update pgfresh_engine.installation set ${set}`);
  const beat = (id: number) => scene.value('pgfresh_engine.heartbeat_process($1::bigint)', [id]);
  const register = (kind: string) =>
    scene.value<number>(`pgfresh_engine.register_process($1::text, 'one', '1', 1)`, [kind]);

  it.each(['worker', 'scheduler', 'gateway'])('is told to stop, and may not register: %s', async (kind) => {
    const id = await register(kind);
    expect(await beat(id)).not.toHaveProperty('stop');
    await least('min_protocol = 2');
    expect(await beat(id)).toMatchObject({ alive: true, stop: true });
    await expectRefusal(register(kind), 'PGF_PROCESS_OUTDATED');
    await least('min_protocol = 1');
    expect(await beat(id)).not.toHaveProperty('stop');
  });

  it('is told the same while an upgrade waits, for as long as it said', async () => {
    const id = await register('worker');
    await least(`drain_until = pgfresh.clock() + interval '5 seconds'`);
    expect(await beat(id)).toMatchObject({ alive: true, stop: true });
    await clock.advance('6 seconds');
    expect(await beat(id)).not.toHaveProperty('stop');
    await least('drain_until = null');
  });
});
