import { Child } from '../child.ts';
import type { Scope } from '../scope.ts';
import { type BenchServer, connect } from '../server.ts';
import { pgfresh } from '../worker/contenders/pgfresh.ts';
import { keysFrom } from '../worker/mirror.ts';
import { Stage } from '../worker/stage.ts';
import { hello, messagesToSnapshot, want } from './conversation.ts';
import type { Memory } from './memory.ts';
import type { Plan } from './plan.ts';
import { PlainClient } from '../../test/harness/plain-client.ts';

/** A server with the same viewers, gateway or not. */
export interface Host {
  readonly name: 'gateway' | 'bare ws';
  readonly port: number;
  memory(): Promise<Memory>;
  /** Sends all viewers of the one pair an update; resolves with a time just before it was sent. */
  change(): Promise<number>;
}

export const commonKey = 'K1';

/** A database with enough fresh quotes that no provider is ever called. */
export interface House {
  readonly url: string;
  /** Keys of the viewers that stay. */
  readonly stayers: readonly string[];
  /** Returns this many keys that were never viewed. */
  takeNew(count: number): string[];
  /** Demand rows written so far. */
  demandRows(): Promise<number>;
  change(): Promise<number>;
}

const keepCount = `
  create table public.demand_written (rows bigint);
  create function count_demand() returns trigger language plpgsql as $$
    begin insert into public.demand_written select count(*) from fresh; return null; end $$;
  create trigger inserted after insert on pgfresh_engine.node_demand referencing new table as fresh for each statement execute function count_demand();
  create trigger updated after update on pgfresh_engine.node_demand referencing new table as fresh for each statement execute function count_demand()`;

export async function buildHouse(server: BenchServer, scope: Scope, plan: Plan): Promise<House> {
  const { perSecond, warmUpSeconds, seconds, idlePerSecond, idleSeconds, newOneIn } = plan.joins;
  const joins = perSecond * (warmUpSeconds + seconds) + idlePerSecond * idleSeconds;
  const quotes = 1 + plan.pairs + Math.ceil(joins / newOneIn) + 100;
  const stage = await Stage.build(pgfresh, server, scope, { provider: 'http://127.0.0.1:9', quotes });
  const { url } = await stage.clone(scope);
  const client = await connect(url, scope);
  await client.query('update quote set fetched_at = clock_timestamp()');
  await client.query('vacuum (analyze) quote');
  await client.query(keepCount);
  const others = keysFrom(2, plan.pairs);
  const unseen = keysFrom(2 + plan.pairs, quotes - 1 - plan.pairs);
  let price = 1;
  return {
    url,
    stayers: [
      ...Array.from({ length: plan.together }, () => commonKey),
      ...Array.from({ length: plan.apart }, (_, place) => others[place % others.length]!),
    ],
    takeNew: (count) => unseen.splice(0, count),
    async demandRows() {
      const { rows } = await client.query<{ rows: number }>(
        'select coalesce(sum(rows), 0)::int as rows from demand_written',
      );
      return rows[0]!.rows;
    },
    async change() {
      const update = {
        name: 'change',
        text: 'update quote set price = $1::float8, fetched_at = clock_timestamp() where symbol = $2::text',
      };
      const began = Number(process.hrtime.bigint()) / 1e6;
      await client.query({ ...update, values: [++price, commonKey] });
      return began;
    },
  };
}

export async function openGateway(house: House, scope: Scope): Promise<Host> {
  const file = new URL('./gateway-host.ts', import.meta.url);
  const { child, value } = await Child.open(scope, file, [house.url], ['--expose-gc']);
  return {
    name: 'gateway',
    port: value as number,
    memory: () => child.ask('memory'),
    change: () => house.change(),
  };
}

/** Sends the gateway's messages, byte by byte. */
export async function openBare(said: Conversation, scope: Scope): Promise<Host> {
  const file = new URL('./bare-host.ts', import.meta.url);
  const { child, value } = await Child.open(scope, file, [commonKey, ...said.first], ['--expose-gc']);
  return {
    name: 'bare ws',
    port: value as number,
    memory: () => child.ask('memory'),
    change: () => child.ask('broadcast', said.change),
  };
}

/** A gateway's messages to a viewer of the one pair: until its snapshot, and on a change. */
export interface Conversation {
  readonly first: readonly string[];
  readonly change: string;
}

export async function listenTo(house: House, port: number): Promise<Conversation> {
  const said: string[] = [];
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const viewer = new PlainClient({
    port,
    from: undefined,
    onOpen: () => viewer.say(hello, want(commonKey)),
    onMessage: (message) => {
      said.push(message.text());
      if (said.length === messagesToSnapshot) house.change().catch(reject);
      if (said.length > messagesToSnapshot) resolve();
    },
    onLost: (problem) => reject(new Error(problem)),
  });
  await promise;
  viewer.leave();
  return { first: said.slice(0, messagesToSnapshot), change: said[messagesToSnapshot]! };
}
