import { isZone, nearMiss } from '../config/index.ts';
import { PgfreshError } from '../errors/index.ts';

/** A period with one offset from UTC. All in milliseconds. */
export interface ZonePeriod {
  readonly start: number;
  readonly end: number;
  readonly offset: number;
  /** The offset just before it; the same if a year without changes begins here. */
  readonly before: number;
}

const minute = 60_000;
const week = 7 * 24 * 60 * minute;

/** The period that an instant is in. Throws PGF_ZONE_UNKNOWN. */
export function periodAt(zone: string, instant: number): ZonePeriod {
  return zoneOf(zone).at(instant);
}

const zones = new Map<string, Zone>();

function zoneOf(name: string): Zone {
  let zone = zones.get(name);
  if (!zone) zones.set(name, (zone = new Zone(name)));
  return zone;
}

// An Intl call takes microseconds and a slot search makes many, so each year is cached.
class Zone {
  readonly #format: Intl.DateTimeFormat;
  readonly #years = new Map<number, ZonePeriod[]>();

  constructor(name: string) {
    if (!isZone(name)) throw unknownZone(name);
    this.#format = new Intl.DateTimeFormat('en-US', { timeZone: name, timeZoneName: 'longOffset' });
  }

  at(instant: number): ZonePeriod {
    const year = new Date(instant).getUTCFullYear();
    let periods = this.#years.get(year);
    if (!periods) this.#years.set(year, (periods = this.#periods(year)));
    return periods.findLast(({ start }) => start <= instant)!;
  }

  #periods(year: number): ZonePeriod[] {
    const [start, end] = [Date.UTC(year, 0), Date.UTC(year + 1, 0)];
    const changes = [start];
    // No zone changes twice in a week.
    for (let at = start; at < end; at += week) {
      const until = Math.min(at + week, end - minute);
      if (this.#offset(at) !== this.#offset(until)) changes.push(this.#change(at, until));
    }
    return changes.map((change, index) => ({
      start: change,
      end: changes[index + 1] ?? end,
      offset: this.#offset(change),
      before: this.#offset(change - minute),
    }));
  }

  // The first minute of the new offset: `early` has the old one, `late` the new one.
  #change(early: number, late: number): number {
    const old = this.#offset(early);
    while (late - early > minute) {
      const middle = early + Math.floor((late - early) / 2 / minute) * minute;
      if (this.#offset(middle) === old) early = middle;
      else late = middle;
    }
    return late;
  }

  #offset(instant: number): number {
    const [, sign, hours, minutes] = /GMT([+-])(\d\d):(\d\d)/.exec(this.#format.format(instant)) ?? [];
    return sign === undefined ? 0 : (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * minute;
  }
}

function unknownZone(zone: string): PgfreshError {
  const near = zone === '' ? undefined : nearMiss(zone, ['UTC', ...Intl.supportedValuesOf('timeZone')]);
  return new PgfreshError('PGF_ZONE_UNKNOWN', {
    zone: JSON.stringify(zone.slice(0, 80)),
    hint: near ? `; did you mean "${near}"?` : '',
  });
}
