/**
 * A second, slow way to find slots, which shares nothing with the first: zones come from Intl hour by hour,
 * a rhythm is tried minute by minute, and a time of the day is tried with every offset that the zone has.
 */
const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;

export class ZoneTable {
  readonly #instants: number[] = [];
  readonly #offsets: number[] = [];

  constructor(zone: string, from: number, until: number) {
    const format = new Intl.DateTimeFormat('en-GB', {
      timeZone: zone,
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
    });
    const offset = (instant: number): number => {
      const [d, m, y, h, i] = format.format(instant).match(/\d+/g)!.map(Number);
      return Date.UTC(y!, m! - 1, d, h, i) - instant;
    };
    for (let at = from; at < until; at += hour) {
      if (offset(at) === this.#offsets.at(-1)) continue;
      // It changed within the last hour: now minute by minute.
      let first = at;
      while (first > from && offset(first - minute) === offset(at)) first -= minute;
      this.#instants.push(first);
      this.#offsets.push(offset(at));
    }
  }

  /** When clocks change. */
  get changes(): readonly number[] {
    return this.#instants.slice(1);
  }

  offset(instant: number): number {
    return this.#offsets[this.#instants.findLastIndex((at) => at <= instant)]!;
  }

  /** The instants at which clocks show this, and none if they never do. */
  showing(wall: number): number[] {
    const instants = [...new Set(this.#offsets)].map((offset) => wall - offset);
    return instants.filter((instant) => instant + this.offset(instant) === wall).toSorted((a, b) => a - b);
  }

  /** The change of the clocks that left this out. */
  leavingOut(wall: number): number {
    return this.changes.find((at) => wall >= at + this.offset(at - minute) && wall < at + this.offset(at))!;
  }
}

/** The first slots after an instant, up to another. */
export function firstSlots(
  expression: string,
  table: ZoneTable,
  after: number,
  until: number,
  count: number,
): number[] {
  const [m, h, dom, mon, dow] = expression.split(' ') as [string, string, string, string, string];
  const minutes = values(m, 0, 59);
  const hours = values(h, 0, 23);
  const slots = new Set<number>();
  if (/[*/-]/.test(m + h)) {
    let date = Number.NaN;
    let runs = false;
    for (let at = Math.floor(after / minute) * minute + minute; at <= until && slots.size < count; at += minute) {
      const wall = at + table.offset(at);
      if (Math.floor(wall / day) !== date) runs = isDay((date = Math.floor(wall / day)), dom, mon, dow);
      if (runs && minutes.has(Math.floor((wall % hour) / minute)) && hours.has(Math.floor((wall % day) / hour)))
        slots.add(at);
    }
  } else {
    for (let date = Math.floor(after / day) - 2; date <= Math.floor(until / day) + 2; date++) {
      if (!isDay(date, dom, mon, dow)) continue;
      for (const one of hours)
        for (const other of minutes) {
          const wall = date * day + one * hour + other * minute;
          slots.add(table.showing(wall)[0] ?? table.leavingOut(wall));
        }
    }
  }
  return [...slots]
    .filter((slot) => slot > after && slot <= until)
    .toSorted((a, b) => a - b)
    .slice(0, count);
}

function isDay(date: number, dom: string, mon: string, dow: string): boolean {
  const at = new Date(date * day);
  const lastDay = new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1, 0)).getUTCDate();
  if (!values(mon, 1, 12).has(at.getUTCMonth() + 1)) return false;
  const byDay = values(dom.replace('L', String(lastDay)), 1, 31).has(at.getUTCDate());
  const nth = dow.split(',').some((term) => {
    const [weekday, which] = term.split('#');
    if (which === undefined || Number(weekday) % 7 !== at.getUTCDay()) return false;
    return which === 'L' ? at.getUTCDate() > lastDay - 7 : Math.floor((at.getUTCDate() - 1) / 7) + 1 === Number(which);
  });
  const weekdays = values(dow, 0, 7);
  const byWeekday = nth || weekdays.has(at.getUTCDay()) || (at.getUTCDay() === 0 && weekdays.has(7));
  if (dom !== '*' && dow !== '*') return byDay || byWeekday;
  return dom === '*' ? byWeekday : byDay;
}

const read = new Map<string, Set<number>>();

// Numbers only: names and words have tests of their own.
function values(field: string, low: number, high: number): Set<number> {
  const key = `${field} ${low} ${high}`;
  const known = read.get(key);
  if (known) return known;
  const found = new Set<number>();
  for (const term of field.split(',')) {
    if (term.includes('#')) continue;
    const [range, step = '1'] = term.split('/');
    const [from, to = from] = range === '*' ? [low, high] : range!.split('-').map(Number);
    for (let value = from!; value <= to!; value += Number(step)) found.add(value);
  }
  read.set(key, found);
  return found;
}
