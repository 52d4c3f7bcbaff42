/** The role, user and claims with which rows under row security are read. */
export interface RlsReader {
  readonly role: string;
  readonly user: string;
  /** The claims of the user's token, as JSON. */
  readonly claims: string;
  /** Equal for readers that see the same rows. */
  readonly tag: string;
  /** Pairs of readers with the same group are read together. It is the tag, unless a reader needs reads of its own. */
  readonly group: string;
}
