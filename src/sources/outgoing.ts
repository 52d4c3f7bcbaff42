import { createHash } from 'node:crypto';
import { isFreeHeader, type Authorization, type HttpRequest, type Source } from '../config/index.ts';
import { StepFailure } from './step-failure.ts';

/** A request that is ready to send. */
export interface Outgoing {
  readonly method: string;
  readonly url: URL;
  /** By lower-case name. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array | undefined;
}

/** The address of a source, its allowed hosts, and what is sent with each call. */
export interface Place {
  /** Without a trailing slash. */
  readonly base: string | undefined;
  readonly hosts: readonly string[];
  readonly origins: ReadonlySet<string>;
  readonly headers: Readonly<Record<string, string>>;
}

const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];

export function placeOf({ baseUrl, hosts, headers }: Pick<Source, 'baseUrl' | 'hosts' | 'headers'>): Place {
  const all = baseUrl === undefined ? hosts : [new URL(baseUrl).host, ...hosts];
  return {
    base: baseUrl?.replace(/\/+$/, ''),
    hosts: all,
    origins: new Set(all.flatMap((host) => [new URL(`https://${host}`).origin, new URL(`http://${host}`).origin])),
    headers: merged({ accept: 'application/json', 'user-agent': 'pgfresh' }, headers),
  };
}

/** The request to send, before authorization. Throws if it is not allowed. */
export function prepare(request: HttpRequest, place: Place): Outgoing {
  const { method = 'GET', query, headers, body } = request;
  if (!methods.includes(method))
    throw new StepFailure('config', `expected one of ${methods.join(', ')}, got ${method}`);
  const url = withQuery(resolveUrl(request.url, place), query);
  return withBody(
    { method, url, headers: headers ? merged(place.headers, headers) : place.headers, body: undefined },
    body,
  );
}

/** The request with the additions of `authorize`, and those additions, which are secret. */
export function authorised(request: Outgoing, change: Authorization): { request: Outgoing; secrets: string[] } {
  const moved = parsed(change.url ?? request.url.href);
  if (moved.origin !== request.url.origin)
    throw new StepFailure('config', 'authorize may not change the host of a call');
  const headers = merged(request.headers, change.headers ?? {});
  const bare = { ...request, url: withQuery(moved, change.query), headers };
  const added = Object.entries({ ...change.query, ...change.headers }).map(([, value]) => String(value));
  const secrets = added.flatMap((value) => [value, ...value.split(/[\s,;="]+/)]).filter(({ length }) => length >= 8);
  return { request: change.body === undefined ? bare : withBody(bare, change.body), secrets };
}

/** The request that follows a redirect; undefined if the answer is none. */
export function redirected(
  request: Outgoing,
  { status, headers }: { readonly status: number; readonly headers: Pick<Headers, 'get'> },
  place: Place,
): Outgoing | undefined {
  if (![301, 302, 303, 307, 308].includes(status)) return undefined;
  const location = headers.get('location');
  if (location === null) throw new StepFailure('network', `HTTP ${status} without a Location`, { status });
  const url = URL.parse(location, request.url.href);
  if (!url) throw new StepFailure('network', `HTTP ${status} to what is no address`, { status });
  url.hash = '';
  refuseForeign(url, place);
  if (request.url.protocol === 'https:' && url.protocol !== 'https:') {
    throw new StepFailure('config', `HTTP ${status} from https to http, which everybody on the way could read`);
  }
  const isElsewhere = url.origin !== request.url.origin;
  const becomesGet = status === 303 || (status < 303 && request.method === 'POST');
  const drops = [
    ...(isElsewhere ? [/auth|cookie|key|secret|signature|token/] : []),
    ...(becomesGet ? [/^content-/] : []),
  ];
  const kept = Object.entries(request.headers).filter(([name]) => !drops.some((drop) => drop.test(name)));
  const next = { ...request, url, headers: Object.fromEntries(kept) };
  return becomesGet ? { ...next, method: 'GET', body: undefined } : next;
}

/** Equal for equivalent requests. Computed before authorization, so it contains no secret. */
export function cacheKeyOf({ method, url, headers, body }: Outgoing): string {
  const sorted = new URL(url);
  sorted.searchParams.sort();
  const names = Object.keys(headers).toSorted();
  const hash = createHash('sha256');
  hash.update(JSON.stringify([method, sorted.href, names.map((name) => [name, headers[name]]), typeof body]));
  return hash.update(body ?? '').digest('base64');
}

function resolveUrl(text: string, place: Place): URL {
  // A key put unescaped into a path must not reach another path.
  if (/(?:^|[/\\])(?:\.|%2e){1,2}(?:[/\\?#]|$)/i.test(text.replace(/[?#].*$/s, ''))) {
    throw new StepFailure(
      'config',
      'expected an address without "." and ".." in its path; encodeURIComponent writes keys',
    );
  }
  const isAbsolute = /^[a-z][a-z\d+.-]*:/i.test(text);
  if (!isAbsolute && place.base === undefined) {
    throw new StepFailure('config', 'expected a baseUrl of the source, because the address is a path');
  }
  const url = parsed(isAbsolute ? text : `${place.base}/${text.replace(/^[/\\]+/, '')}`);
  url.hash = '';
  refuseForeign(url, place);
  return url;
}

function parsed(text: string): URL {
  const url = URL.parse(text);
  if (!url) throw new StepFailure('config', 'expected an address, or a path below the baseUrl of the source');
  return url;
}

/** Refuses addresses that do not belong to the source. */
function refuseForeign(url: URL, { origins, hosts }: Place): void {
  if (url.username !== '' || url.password !== '')
    throw new StepFailure('config', 'expected an address without a login');
  if (origins.has(url.origin)) return;
  if (!/^https?:$/.test(url.protocol)) throw new StepFailure('config', `expected http or https, got ${url.protocol}`);
  const expected = hosts.length === 0 ? 'the source has none; set its baseUrl' : `expected ${hosts.join(' or ')}`;
  throw new StepFailure('config', `${url.host} is not a host of the source: ${expected}`);
}

/** Adds the query to the given URL, in place. */
function withQuery(url: URL, query: HttpRequest['query'] = {}): URL {
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) url.searchParams.set(name, String(value));
  }
  return url;
}

function withBody(request: Outgoing, body: HttpRequest['body']): Outgoing {
  if (body === undefined) return request;
  if (request.method === 'GET') throw new StepFailure('config', 'expected no body, because the method is GET');
  if (typeof body === 'string' || body instanceof Uint8Array) return { ...request, body };
  const isForm = body instanceof URLSearchParams;
  const type = isForm ? 'application/x-www-form-urlencoded' : 'application/json';
  const headers = { 'content-type': type, ...request.headers };
  return { ...request, headers, body: isForm ? body.toString() : JSON.stringify(body) };
}

function merged(...sets: readonly Readonly<Record<string, string>>[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, value] of sets.flatMap((set) => Object.entries(set))) {
    if (!isFreeHeader(name)) throw new StepFailure('config', `the header ${name} is not one that a request may set`);
    headers[name.toLowerCase()] = value;
  }
  return headers;
}
