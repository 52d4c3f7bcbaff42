import { useNow } from './clock.ts';
import type { Connection } from './connection.tsx';
import { clock, countdown } from './format.ts';
import { tell, type Overview, type Trouble } from './server.ts';

const broken: Readonly<Record<Trouble, string>> = {
  none: '',
  down: 'The provider is down.',
  slow: 'The provider is slow: it answers after 30 s.',
  lying: 'The provider lies.',
  stuck: 'The cache of the provider is stuck.',
  locked: 'The API key has expired.',
  changed: 'The provider has renamed a field.',
  gone: 'The provider says that there is nothing.',
  other: 'The provider is broken, by a fault that was ordered by hand.',
};

const courses: Partial<Readonly<Record<Trouble, string>>> = {
  lying: 'Each answer is checked and refused; nothing of it is stored.',
  stuck: 'An older answer confirms nothing: values go stale at their time, and say so.',
  locked: 'The key is left alone for five minutes and then tried with one call. Values stay, and show their age.',
  changed: 'Each answer is checked and refused. After five in a row the data type is left alone for five minutes.',
  gone: 'An empty answer is an answer: cards say so. Rows that are kept do not count as fresh.',
};

interface NoticeProps {
  readonly connection: Connection;
  readonly trouble: Trouble;
  readonly overview: Overview | undefined;
  readonly onChange: () => void;
}

/** What is wrong now, what pgfresh does about it, and what you can do. */
export function Notice({ connection, trouble, overview, onChange }: NoticeProps) {
  const now = useNow();
  const source = overview?.sources[0];
  const act = async (method: 'PUT' | 'POST', path: string, body?: object): Promise<void> => {
    await tell(method, path, body);
    onChange();
  };
  if (connection === 'away' || connection === 'offline')
    return (
      <div className="notice bad" role="alert">
        <p>
          <b>{connection === 'offline' ? 'You are offline.' : 'The server is away.'}</b> What is below is the last that
          was known, and grows old. The page comes back by itself.
        </p>
      </div>
    );
  const sourceUntil = timeOf(source?.paused_until);
  const isSourceLeft = sourceUntil > now || ['breaker', 'probing'].includes(source?.state ?? '');
  // A data type can be left alone too, while the others go on.
  const types = isSourceLeft
    ? []
    : (overview?.problems ?? []).filter(({ data_type: type, until }) => type !== null && timeOf(until) > now);
  const until = isSourceLeft ? sourceUntil : Math.min(...types.map((type) => timeOf(type.until)));
  const isLeftAlone = isSourceLeft || types.length > 0;
  const isWaiting = isLeftAlone && until > now;
  if (trouble === 'none' && !isLeftAlone && !overview?.stopped) return null;
  const course = overview?.stopped
    ? 'Nothing is spent now.'
    : isWaiting
      ? `pgfresh leaves ${isSourceLeft ? 'it' : list(types.map((type) => type.data_type!))} alone, and tries one call${types.length > 1 ? ' of each' : ''} at ${clock(until)}.${isSourceLeft ? '' : ' All else goes on.'}`
      : isLeftAlone
        ? 'pgfresh tries one call, to see whether it is back.'
        : (courses[trouble] ?? 'Values that are here stay, and show their age. After five failures it is left alone.');
  return (
    <div className={trouble === 'none' ? 'notice' : 'notice bad'}>
      <p role="status">
        <b>{trouble === 'none' ? 'The provider is back.' : broken[trouble]}</b> {course}
      </p>
      {/* Not for screen readers, which would read it every second. */}
      {isWaiting && (
        <span className="countdown" aria-hidden="true">
          {countdown(until - now)}
        </span>
      )}
      <div className="notice-acts">
        {trouble !== 'none' && (
          <button
            type="button"
            className="button"
            onClick={() => void act('PUT', '/dev/provider', { trouble: 'none' })}
          >
            Back to normal
          </button>
        )}
        {trouble === 'none' && isLeftAlone && (
          <button type="button" className="button" onClick={() => void act('POST', '/dev/probe')}>
            Try it now
          </button>
        )}
      </div>
    </div>
  );
}

function timeOf(text: string | null | undefined): number {
  return text ? Date.parse(text) : 0;
}

function list(names: readonly string[]): string {
  return names.length < 2 ? names.join('') : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
}
