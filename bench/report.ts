import { median } from './statistics.ts';

/** A bound that a bench must keep. The value is what was measured. */
export interface Bar {
  readonly name: string;
  readonly value: number;
  readonly bound: number;
  readonly is: 'at least' | 'at most' | 'more than';
  /** A target beyond the bound; shown, but without effect. */
  readonly aim?: number;
  readonly ok: boolean;
}

export type Unit = 'jobs/s' | 'ms' | 'bytes' | 'µs' | '% of a core' | 'calls' | 'rows' | 'viewers/s';

/** One measured number: the median of its repeats, and all of them. */
export interface Figure {
  readonly measure: string;
  readonly contender: string;
  readonly unit: Unit;
  readonly value: number | null;
  readonly samples: readonly number[];
}

export interface Outcome {
  readonly bars: readonly Bar[];
  readonly figures: readonly Figure[];
  /** What else a reader needs in order to judge the figures: settings, server, sizes. */
  readonly about: Readonly<Record<string, unknown>>;
}

export function bar(name: string, value: number, is: Bar['is'], bound: number, aim?: number): Bar {
  const rounded = round(value);
  return { name, value: rounded, bound, is, ...(aim === undefined ? {} : { aim }), ok: holds(value, is, bound) };
}

// A value that could not be measured is NaN, and NaN holds no bound.
function holds(value: number, is: Bar['is'], bound: number): boolean {
  switch (is) {
    case 'at least':
      return value >= bound;
    case 'at most':
      return value <= bound;
    case 'more than':
    default:
      return value > bound;
  }
}

/** Collects the repeats of every measure. `null` means that a contender does not support the measure. */
export class Samples {
  readonly #byFigure = new Map<string, { measure: string; contender: string; unit: Unit; values: number[] }>();

  add(measure: string, contender: string, unit: Unit, value: number | null): void {
    const key = `${measure}|${contender}`;
    const entry = this.#byFigure.get(key) ?? { measure, contender, unit, values: [] };
    if (value !== null && Number.isFinite(value)) entry.values.push(value);
    this.#byFigure.set(key, entry);
  }

  figures(): Figure[] {
    return [...this.#byFigure.values()].map(({ measure, contender, unit, values }) => ({
      measure,
      contender,
      unit,
      value: values.length === 0 ? null : round(median(values)),
      samples: values.map(round),
    }));
  }
}

export function allOk(bars: readonly Bar[]): boolean {
  return bars.every((each) => each.ok);
}

export function jsonLine(bench: string, outcome: Outcome): string {
  const { bars, figures, about } = outcome;
  return JSON.stringify({ bench, ok: allOk(bars), bars, ...about, figures });
}

/** The measures as rows and the contenders as columns, then the bars. */
export function table(bench: string, outcome: Outcome): string {
  const { figures, bars } = outcome;
  const contenders = unique(figures.map((figure) => figure.contender));
  const header = [bench, 'unit', ...contenders];
  const rows = unique(figures.map((figure) => figure.measure)).map((measure) => {
    const ofMeasure = figures.filter((figure) => figure.measure === measure);
    const cells = contenders.map((contender) => cell(ofMeasure.find((figure) => figure.contender === contender)));
    return [measure, ofMeasure[0]!.unit, ...cells];
  });
  const parts = [align([header, ...rows])];
  if (bars.length > 0) parts.push(align(bars.map(barRow)), verdict(bars));
  return parts.join('\n\n');
}

function cell(figure: Figure | undefined): string {
  return figure?.value === null || figure === undefined ? '–' : showNumber(figure.value);
}

function barRow({ ok, name, value, is, bound, aim }: Bar): string[] {
  const wanted = `${is} ${showNumber(bound)}${aim === undefined ? '' : ` (aim ${showNumber(aim)})`}`;
  return [ok ? 'ok' : 'RED', name, showNumber(value), wanted];
}

function verdict(bars: readonly Bar[]): string {
  const red = bars.filter((each) => !each.ok).length;
  return red === 0 ? `All ${bars.length} bars hold.` : `${red} of ${bars.length} bars are red.`;
}

export function showNumber(value: number): string {
  if (!Number.isFinite(value)) return 'not measured';
  return value.toLocaleString('en-US', { maximumFractionDigits: Math.abs(value) >= 100 ? 0 : 2 });
}

function align(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  // The first columns are words, the others numbers.
  const pad = (text: string, column: number) =>
    column < 2 ? text.padEnd(widths[column]!) : text.padStart(widths[column]!);
  return rows.map((row) => row.map(pad).join('  ').trimEnd()).join('\n');
}

function unique(values: readonly string[]): string[] {
  return [...new Set(values)];
}

function round(value: number): number {
  return Number(value.toPrecision(4));
}
