import { expect, it } from 'vitest';
import { isPublicAddress } from '../../src/sources/public-address.ts';
import { RawServer, answer } from './raw-server.ts';
import { ClientScene } from './scene.ts';

it.each([
  '0.0.0.0',
  '0.1.2.3',
  '10.0.0.1',
  '100.64.0.1',
  '100.100.100.200',
  '127.0.0.1',
  '127.255.255.254',
  '168.63.129.16',
  '169.254.0.1',
  '169.254.169.254',
  '172.16.0.1',
  '172.31.255.255',
  '192.0.0.192',
  '192.0.2.1',
  '192.168.1.1',
  '198.18.0.1',
  '198.51.100.1',
  '203.0.113.9',
  '224.0.0.1',
  '240.0.0.1',
  '255.255.255.255',
  '::',
  '::1',
  '::127.0.0.1',
  '::ffff:127.0.0.1',
  '::ffff:7f00:1',
  '::ffff:10.1.2.3',
  '::ffff:8.8.8.8',
  '64:ff9b::10.0.0.1',
  '64:ff9b::7f00:1',
  '64:ff9b::',
  '64:ff9b:1::1',
  'fe80::1',
  'fe80::1%eth0',
  'fec0::1',
  'fc00::1',
  'fd00:ec2::254',
  'ff02::1',
  '2001::1',
  '2001:db8::1',
  '2002:7f00:1::',
  '3fff::1',
  '4000::1',
  'localhost',
  '',
])('%s is not public', (address) => {
  expect(isPublicAddress(address)).toBe(false);
});

it.each([
  '1.1.1.1',
  '8.8.8.8',
  '100.63.255.255',
  '100.128.0.1',
  '172.15.0.1',
  '172.32.0.1',
  '192.0.1.1',
  '198.20.0.1',
  '223.255.255.255',
  '2606:4700:4700::1111',
  '2a00:1450:4001:80b::200e',
  '64:ff9b::8.8.8.8',
])('%s is public', (address) => {
  expect(isPublicAddress(address)).toBe(true);
});

it.each(['127.0.0.1', '127.1', '2130706433', '0x7f.0.0.1', 'localhost', '[::ffff:127.0.0.1]', '0.0.0.0'])(
  'nothing is sent to %s unless the source allows it',
  async (host) => {
    const server = await RawServer.start(() => answer());
    const scene = new ClientScene({ baseUrl: `http://${host}:${server.port}` });
    const failed = await scene.fails();
    expect(failed).toMatchObject({ outcome: 'config', calls: 0, wireBytes: 0 });
    expect(failed.message).toMatch(/expected a public address, .* allowPrivateAddresses of the source allows it$/);
    expect(server.connections).toBe(0);
  },
);

it('a name of this machine is called if the source allows it', async () => {
  const server = await RawServer.start(() => answer());
  const scene = new ClientScene({ baseUrl: `http://localhost:${server.port}`, allowPrivateAddresses: true });
  expect(await scene.call()).toMatchObject({ status: 200 });
});
