/** A connection to a client, by WebSocket or event stream. */
export interface Transport {
  send(message: Buffer): void;
  /** Sends the messages of this tick together, at its end. */
  cork(): void;
  /** Bytes that the client has not read yet. */
  readonly bufferedBytes: number;
  /** Closes the connection once everything is sent. */
  close(code: number, reason: string): void;
  /** Closes the connection at once. */
  terminate(): void;
  /** Asks the client for a sign of life. Returns false if it did not answer the last time. */
  ping(): boolean;
}
