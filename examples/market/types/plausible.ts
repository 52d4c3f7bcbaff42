const minuteMs = 60_000;

/** The first sentence that is true of a row is what is wrong with it. */
export function firstWrong(...complaints: readonly (string | false)[]): string | undefined {
  return complaints.find((complaint) => complaint !== false) || undefined;
}

/** Clocks differ a little; data of the future is a lie all the same. */
export function ofTheFuture(time: string, now: Date): string | false {
  return Date.parse(time) > now.getTime() + 5 * minuteMs && `the provider's time is in the future: ${time}`;
}

export function outside(name: string, value: number | null, lowest: number, highest: number): string | false {
  return (
    value !== null && (value < lowest || value > highest) && `${name} is ${value}, expected ${lowest} to ${highest}`
  );
}
