import { BlockList, isIP } from 'node:net';

/** Ranges that IANA lists as not globally reachable, and public addresses that clouds use for internal services. */
const reservedV4 = blockListOf('ipv4', [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '168.63.129.16/32', // the host of an Azure machine
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/3', // multicast, reserved and broadcast
]);

/** The only part of IPv6 in use on the Internet; the rest is local or embeds IPv4 addresses. */
const globalV6 = blockListOf('ipv6', ['2000::/3']);
// Includes ranges that embed IPv4 addresses (Teredo, 6to4), which could name any private one.
const reservedV6 = blockListOf('ipv6', ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20']);
// NAT64 prefix, by which IPv6-only networks reach IPv4 hosts; the embedded address decides.
const translatedV6 = blockListOf('ipv6', ['64:ff9b::/96']);

/** Whether an address is on the public Internet, not on this machine, its network or its cloud. */
export function isPublicAddress(address: string): boolean {
  const family = isIP(address);
  if (family === 4) return !reservedV4.check(address, 'ipv4');
  if (family !== 6) return false;
  const plain = address.replace(/%.*$/, '');
  if (translatedV6.check(plain, 'ipv6')) return isPublicAddress(embeddedV4(plain));
  return globalV6.check(plain, 'ipv6') && !reservedV6.check(plain, 'ipv6');
}

/** The last 32 bits as an IPv4 address. */
function embeddedV4(address: string): string {
  // The URL parser normalises every spelling: the last 32 bits become two hex groups.
  const groups = new URL(`http://[${address}]`).hostname.slice(1, -1).split(':').slice(-2);
  const [high, low] = groups.map((group) => Number.parseInt(group || '0', 16));
  return [high! >> 8, high! & 255, low! >> 8, low! & 255].join('.');
}

function blockListOf(family: 'ipv4' | 'ipv6', networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of networks) {
    const [address, prefix] = network.split('/') as [string, string];
    list.addSubnet(address, Number(prefix), family);
  }
  return list;
}
