import type { marketTypes } from '../types/index.ts';

// From here the board knows the names and the rows of the data types.
declare module 'pgfresh/client' {
  interface Register {
    types: typeof marketTypes;
  }
}
