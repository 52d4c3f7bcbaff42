import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { Connections } from '../../src/sources/connections.ts';
import { Names } from '../../src/sources/names.ts';

/** A name server that says nothing about `dead.*`, knows no `none.*`, and says 127.0.0.1 of everything else. */
async function nameServer(): Promise<{ server: string; asked: string[] }> {
  const socket = createSocket('udp4');
  const asked: string[] = [];
  socket.on('message', (question, { port, address }) => {
    const name = nameIn(question);
    const kind = question.readUInt16BE(question.length - (hasExtension(question) ? 15 : 4));
    asked.push(`${name} ${kind}`);
    if (name.startsWith('dead.')) return;
    socket.send(answerTo(question, name, kind), port, address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  onTestFinished(() => void socket.close());
  return { server: `127.0.0.1:${socket.address().port}`, asked };
}

const hasExtension = (question: Buffer): boolean => question.readUInt16BE(10) > 0;

function nameIn(question: Buffer): string {
  const labels: string[] = [];
  for (let at = 12; question[at]! > 0; at += question[at]! + 1)
    labels.push(question.toString('latin1', at + 1, at + 1 + question[at]!));
  return labels.join('.');
}

function answerTo(question: Buffer, name: string, kind: number): Buffer {
  const end = 12 + name.length + 2 + 4;
  const isKnown = !name.startsWith('none.') && kind === 1;
  const head = Buffer.from(question.subarray(0, end));
  head.writeUInt16BE(name.startsWith('none.') ? 0x81_83 : 0x81_80, 2);
  head.writeUInt16BE(isKnown ? 1 : 0, 6);
  head.writeUInt32BE(0, 8);
  // The name of the question, an address of the Internet, for a minute.
  const record = [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1];
  return Buffer.concat([head, Buffer.from(isKnown ? record : [])]);
}

it('runs 9: names that no one answers for stop no other name, of this source or of others', async () => {
  const { server } = await nameServer();
  const dead = new Names({ servers: [server], limitMs: 2_000 });
  const alive = new Names({ servers: [server], limitMs: 2_000 });
  const inVain = Array.from({ length: 20 }, (_, place) => dead.addressesOf(`dead.${place}.test`).catch(String));
  const found = [{ address: '127.0.0.1', family: 4 }];
  expect(await alive.addressesOf('quotes.test')).toEqual(found);
  expect(await dead.addressesOf('quotes.test')).toEqual(found);
  expect(await Promise.race([...inVain, Promise.resolve('still asking')])).toBe('still asking');
  expect(await inVain[0]).toBe('StepFailure: no name server answered for dead.0.test');
});

it('runs 9: name servers that the system gets later are asked', async () => {
  const silent = createSocket('udp4').bind(0, '127.0.0.1');
  await once(silent, 'listening');
  onTestFinished(() => void silent.close());
  const servers = [`127.0.0.1:${silent.address().port}`];
  const names = new Names({ servers, limitMs: 500 });
  await expect(names.addressesOf('quotes.test')).rejects.toThrow('no name server answered');
  servers[0] = (await nameServer()).server;
  expect(await names.addressesOf('quotes.test')).toEqual([{ address: '127.0.0.1', family: 4 }]);
});

it('asks once for what is known for a while, also when many ask', async () => {
  const { server, asked } = await nameServer();
  const names = new Names({ servers: [server] });
  await Promise.all(Array.from({ length: 10 }, () => names.addressesOf('quotes.test')));
  await names.addressesOf('quotes.test');
  expect(asked.toSorted()).toEqual(['quotes.test 1', 'quotes.test 28']);
});

it('asks the system for what is of this machine, or what name servers do not know', async () => {
  const { server, asked } = await nameServer();
  const names = new Names({ servers: [server] });
  expect((await names.addressesOf('localhost')).map(({ address }) => address)).toContain('127.0.0.1');
  expect(asked).toEqual([]);
  await expect(names.addressesOf('none.invalid')).rejects.toMatchObject({ code: expect.stringMatching(/^E/) });
});

it('connects to what the name server says', async () => {
  const { server } = await nameServer();
  const http = createServer((_, answer) => answer.end('hello'));
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const connections = new Connections(true, () => {}, new Names({ servers: [server] }));
  onTestFinished(() => {
    connections.close();
    http.close();
  });
  const { port } = http.address() as AddressInfo;
  const url = new URL(`http://quotes.test:${port}/`);
  const request = connections.open({ method: 'GET', url, headers: {}, body: undefined });
  request.end();
  const [response] = (await once(request, 'response')) as [{ statusCode: number; resume: () => void }];
  expect(response.statusCode).toBe(200);
  response.resume();
});
