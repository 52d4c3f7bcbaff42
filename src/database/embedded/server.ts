import { PgfreshError, problemOf } from '../../errors/index.ts';
import type { Events } from '../../events/index.ts';
import { failpoint, pause, Service } from '../../lifecycle/index.ts';
import { makeDataDir } from '../data-dir.ts';
import { requireBinaries } from './binaries.ts';
import { syncCluster } from './cluster.ts';
import { dataFolder, failed } from './folder.ts';
import { FolderLock } from './lock.ts';
import { ensureDatabase, loginUrl } from './login.ts';
import { freePort, saysPortTaken } from './port.ts';
import { Postmaster } from './postmaster.ts';
import { clearWay, prepare, type Prepared } from './preparation.ts';
import { restartDelay } from './restarts.ts';

export interface EmbeddedOptions {
  readonly dataDir: string;
  readonly events: Events;
  /** `false` gives up durability for speed: for tests. */
  readonly fsync?: boolean;
  /** Milliseconds before a fast shutdown becomes an immediate one. */
  readonly patience?: number;
  /** Maximum size of the server's log, and how often to check it. */
  readonly logLimit?: { readonly bytes: number; readonly everyMs: number };
  /** Source of ports; a test may offer one that is in use. */
  readonly nextPort?: () => Promise<number>;
}

const portAttempts = 10;

/** The bundled PostgreSQL: created at the first start, used by us alone, restarted when it dies. */
export class EmbeddedServer extends Service {
  readonly name = 'embedded PostgreSQL';
  readonly #options: Required<EmbeddedOptions>;
  readonly #folder;
  readonly #restarts: number[] = [];
  #major = 0;
  #lock: FolderLock | undefined;
  #prepared: Prepared | undefined;
  #postmaster: Postmaster | undefined;
  #port = 0;
  #syncing: Promise<void> | undefined;
  #recovering: Promise<void> | undefined;

  constructor(options: EmbeddedOptions) {
    super();
    const { dataDir, events, fsync = true, patience = 20_000, nextPort = freePort } = options;
    const { logLimit = { bytes: 10 * 1024 * 1024, everyMs: 60_000 } } = options;
    this.#options = { dataDir, events, fsync, patience, nextPort, logLimit };
    this.#folder = dataFolder(dataDir);
  }

  get url(): string {
    return loginUrl({ port: this.#port, password: this.#started.password });
  }

  /** The postmaster's process, which changes with a restart. */
  get pid(): number {
    if (this.#postmaster?.pid === undefined) throw new Error(`${this.name} has not started`);
    return this.#postmaster.pid;
  }

  get major(): number {
    return this.#major;
  }

  get #started(): Prepared {
    if (this.#prepared === undefined) throw new Error(`${this.name} has not started`);
    return this.#prepared;
  }

  protected override async onStart(): Promise<void> {
    try {
      const binaries = requireBinaries();
      this.#major = binaries.major;
      await makeDataDir(this.#folder.root);
      this.#lock = await FolderLock.take(this.#folder);
      this.#prepared = await prepare(this.#folder, binaries, this.#options.events, this.stopSignal);
      await this.#launchOnFreePort();
      await this.#logIn();
      await this.#announce();
    } catch (error) {
      await this.#release();
      throw error;
    }
    this.#syncInBackground();
    this.#watch();
  }

  protected override async onStop(): Promise<void> {
    await this.#recovering;
    await this.#release();
  }

  override abandon(): void {
    this.#postmaster?.quit();
  }

  async #launchOnFreePort(): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      this.#port = await this.#options.nextPort();
      try {
        return await this.#launch();
      } catch (error) {
        const taken = error instanceof PgfreshError && saysPortTaken(error.message);
        if (!taken || attempt === portAttempts) throw error;
      }
    }
  }

  async #launch(): Promise<void> {
    const { fsync, patience, logLimit } = this.#options;
    const here = { folder: this.#folder, port: this.#port };
    const postmaster = await Postmaster.spawn({ ...this.#started, ...here, fsync, logLimit });
    this.#postmaster = postmaster;
    try {
      await this.#lock?.record({ postmaster: postmaster.pid });
      await failpoint('embedded.before-ready');
      if (await postmaster.becomesReady(this.stopSignal)) return;
      throw failed(this.#folder, 'starting the server', await postmaster.ended);
    } catch (error) {
      await postmaster.stop(patience);
      throw error;
    }
  }

  async #logIn(): Promise<void> {
    await ensureDatabase({ port: this.#port, password: this.#started.password }).catch((error: unknown) => {
      throw failed(this.#folder, 'logging in', problemOf(error), error);
    });
  }

  async #announce(): Promise<void> {
    await this.#lock?.record({ postmaster: this.pid, port: this.#port });
  }

  // initdb skipped this in order to be ready sooner. If it fails, checkpoints do the same in time.
  #syncInBackground(): void {
    const { runtime, cluster, fresh } = this.#started;
    if (fresh && this.#options.fsync) this.#syncing = syncCluster(this.#folder, runtime, cluster).catch(() => {});
  }

  #watch(): void {
    void this.#postmaster?.ended.then((problem) => {
      if (!this.stopSignal.aborted) this.#recovering = this.#recover(problem);
    });
  }

  async #recover(problem: string): Promise<void> {
    const { events } = this.#options;
    while (!this.stopSignal.aborted) {
      events.emit({ type: 'database.server_died', problem });
      try {
        await pause(restartDelay(this.#restarts, performance.now()), this.stopSignal);
        if (this.stopSignal.aborted) return;
        this.#restarts.push(performance.now());
        events.emit({ type: 'database.starting', folder: this.#folder.root, fresh: false });
        await clearWay(this.#folder, this.#started.cluster);
        await this.#launch();
        await this.#announce();
        return this.#watch();
      } catch (error) {
        problem = problemOf(error);
      }
    }
  }

  async #release(): Promise<void> {
    try {
      // So that no process joins a server that is about to stop.
      if (this.#postmaster) await this.#lock?.record({ postmaster: this.#postmaster.pid }).catch(() => {});
      await this.#postmaster?.stop(this.#options.patience);
      await this.#syncing;
      if (this.#prepared !== undefined) await clearWay(this.#folder, this.#prepared.cluster);
    } finally {
      await this.#prepared?.lock?.release();
      await this.#lock?.release();
      this.#lock = undefined;
    }
  }
}
