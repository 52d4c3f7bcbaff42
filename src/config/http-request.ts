/** A call that `request` describes; pgfresh makes it, within its limits. */
export interface HttpRequest {
  /** GET if it is left out. */
  readonly method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | undefined;
  /** An address of one of the source's hosts, or a path below its `baseUrl`. */
  readonly url: string;
  /** Added to the address; what is undefined is left out. */
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>> | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** URLSearchParams are sent as a form, other objects as JSON. */
  readonly body?: string | Uint8Array | object | undefined;
}

/** A request as it is about to be sent, for the hook that signs it. */
export interface PreparedRequest {
  readonly method: string;
  /** With its query. */
  readonly url: string;
  /** By their names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array | undefined;
}

/** What `authorize` changes of a request; the rest stays. Query and headers are added to those that are there. */
export type Authorization = Partial<Pick<HttpRequest, 'url' | 'query' | 'headers' | 'body'>>;

export interface AuthorizeContext {
  /** The API key itself, if the source has any. */
  readonly apiKey: string | undefined;
  /** What the hook `token` of the source gave, if there is one. */
  readonly token: string | undefined;
}

/** An answer as the hook `token` sees it. */
export interface TokenAnswer {
  readonly status: number;
  readonly body: string;
  /** The body read as JSON. */
  readonly json: () => unknown;
}

export interface TokenContext {
  readonly apiKey: string | undefined;
  /** Makes a call of the source, which counts, and is not authorised. */
  readonly call: (request: HttpRequest) => Promise<TokenAnswer>;
}

export interface Token {
  readonly token: string;
  /** It is fetched anew before that; if it is left out, when the source answers 401. */
  readonly expiresInMs?: number | undefined;
}

/** Where an API key is: in a variable of the environment, or alone in a file. */
export type ApiKeyPlace = { readonly env: string } | { readonly file: string };
