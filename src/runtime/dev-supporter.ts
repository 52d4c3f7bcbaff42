import { readDevSupport, type Dev, type DevSupport, type ResolvedConfig } from '../config/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';
import { Service } from '../lifecycle/index.ts';

/** Runs the configuration's `dev` function as a service. */
export class DevSupporter extends Service {
  readonly name = 'dev';
  readonly #dev: Dev;
  readonly #databaseUrl: string;
  readonly #file: string;
  #config: ResolvedConfig;
  #support: ReturnType<typeof readDevSupport>['support'] | undefined;

  constructor(config: ResolvedConfig, dev: Dev, databaseUrl: string) {
    super();
    this.#config = config;
    this.#dev = dev;
    this.#databaseUrl = databaseUrl;
    this.#file = config.file ?? 'the configuration';
  }

  /** The configuration, with the sources that the `dev` function started. */
  get config(): ResolvedConfig {
    return this.#config;
  }

  get page(): DevSupport['page'] {
    return this.#support?.page;
  }

  get notes(): Readonly<Record<string, string>> {
    return this.#support?.notes ?? {};
  }

  /** Stops only in its turn, because the worker still calls the sources that it started. */
  override requestStop(): void {}

  /** Tells the `dev` function that all services run. */
  async ready(): Promise<void> {
    await this.#calling(() => this.#support?.ready?.());
  }

  protected async onStart(): Promise<void> {
    const context = { databaseUrl: this.#databaseUrl, signal: this.stopSignal };
    const value = await this.#calling(() => this.#dev(context));
    const { support, sources } = readDevSupport(value, this.#config.sources, this.#file);
    this.#support = support;
    this.#config = { ...this.#config, sources };
  }

  protected async onStop(): Promise<void> {
    await this.#calling(() => this.#support?.stop?.());
  }

  async #calling<T>(call: () => T | Promise<T>): Promise<T> {
    try {
      return await call();
    } catch (error) {
      throw new PgfreshError('PGF_DEV_FAILED', { file: this.#file, problem: problemOf(error) }, { cause: error });
    }
  }
}
