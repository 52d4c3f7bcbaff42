import { z } from 'zod';

/** A size as text, such as "500MB" (decimal) or "20GiB" (binary); or a number of bytes. */
export type Bytes = number | `${number}${'' | 'K' | 'M' | 'G' | 'T' | 'Ki' | 'Mi' | 'Gi' | 'Ti'}B`;

const units: Readonly<Record<string, number>> = {
  B: 1,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
  KIB: 2 ** 10,
  MIB: 2 ** 20,
  GIB: 2 ** 30,
  TIB: 2 ** 40,
};

const expected = 'expected a number of bytes, or a text such as "500MB", "20GB" or "1TiB"';

const written = z.string() as z.ZodType as z.ZodType<string, Extract<Bytes, string>>;

/** A number of bytes, or a text such as "20GB" (decimal) or "20GiB" (binary). Read as bytes. */
export const bytes = z.union([z.number(), written], expected).transform((value, context) => {
  const count = typeof value === 'number' ? value : parseBytes(value);
  if (Number.isSafeInteger(count) && count >= 0) return count;
  context.addIssue({ code: 'custom', message: expected });
  return z.NEVER;
});

function parseBytes(text: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*([kmgt]i?b|b)?$/i.exec(text.trim());
  if (!match) return Number.NaN;
  return Math.round(Number(match[1]) * units[(match[2] ?? 'B').toUpperCase()]!);
}
