/** As whom rows with row security are read. */
export interface Reader {
  readonly role: string;
  readonly user: string;
  /** What his token says, as JSON. */
  readonly claims: string;
  /** Equal for those who see the same. */
  readonly tag: string;
  /** What is read for one name is read together; the tag, unless somebody needs readings of his own. */
  readonly name: string;
}
