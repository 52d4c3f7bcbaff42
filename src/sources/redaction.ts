const mark = '[redacted]';

/** Number of secrets remembered, most recently used first, so that old tokens do not pile up. */
const most = 256;

/** Removes secrets from text, in every encoding that a request or answer may use. */
export class Redaction {
  readonly #secrets: Set<string>;
  #pattern: RegExp | undefined;

  constructor(secrets: Iterable<string> = []) {
    this.#secrets = new Set([...secrets].filter((secret) => secret !== ''));
  }

  /** Remembers a secret, even after another one has replaced it. */
  add(secret: string): void {
    if (secret === '') return;
    const isKnown = this.#secrets.delete(secret);
    this.#secrets.add(secret);
    if (isKnown) return;
    if (this.#secrets.size > most) this.#secrets.delete(this.#secrets.values().next().value!);
    this.#pattern = undefined;
  }

  /** A copy that also knows these secrets. */
  with(secrets: readonly string[]): Redaction {
    return secrets.length === 0 ? this : new Redaction([...this.#secrets, ...secrets]);
  }

  text(text: string): string {
    if (this.#secrets.size === 0) return text;
    this.#pattern ??= patternOf([...this.#secrets].flatMap(formsOf));
    return text.replace(this.#pattern, mark);
  }
}

function patternOf(forms: readonly string[]): RegExp {
  // Longest first, or the rest of a longer form would show. Ignore case, because %2f equals %2F.
  const ordered = [...new Set(forms)].toSorted((a, b) => b.length - a.length);
  return new RegExp(ordered.map((form) => form.replace(/[$()*+./?[\\\]^{|}-]/g, '\\$&')).join('|'), 'gi');
}

function formsOf(secret: string): string[] {
  return [
    secret,
    encodeURIComponent(secret),
    encodeURI(secret),
    new URLSearchParams({ k: secret }).toString().slice(2),
    JSON.stringify(secret).slice(1, -1),
    JSON.stringify(secret).slice(1, -1).replaceAll('/', '\\/'),
    secret.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;'),
    Buffer.from(secret).toString('hex'),
    ...base64FormsOf(Buffer.from(secret)),
  ];
}

/** Base64 encodes the same bytes in three ways, depending on how many precede them, as in "user:secret". */
function base64FormsOf(secret: Buffer): string[] {
  return [0, 1, 2].flatMap((before) => {
    const whole = Buffer.concat([Buffer.alloc(before), secret])
      .toString('base64')
      .replace(/=+$/, '');
    // The characters at both ends may also encode bits of neighbouring bytes.
    const start = before === 0 ? 0 : before + 1;
    const end = (before + secret.length) % 3 === 0 ? whole.length : whole.length - 1;
    const inner = whole.slice(start, end);
    // A shorter form would match unrelated text.
    return inner.length < 8 ? [] : [inner, inner.replaceAll('+', '-').replaceAll('/', '_')];
  });
}
