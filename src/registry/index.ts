export {
  validated,
  type AnswerContext,
  type Bounds,
  type DataType,
  type HttpRequest,
  type RequestContext,
} from '../config/index.ts';
export { isEmpty, type ColumnChange, type Overridden, type RegistryDiff } from './diff.ts';
export { examineRegistry } from './examination.ts';
export { jsonSchemaOf } from './json-schema.ts';
export { sampleOf } from './sample.ts';
export { admitKey, canonicalKey } from './key.ts';
export { listTypes, type ListedType } from './list.ts';
export { didYouMean, rowColumns } from './row-columns.ts';
export { readProblems, type TypeProblem } from './rows.ts';
export { previewSync, syncRegistry } from './sync.ts';
export { mirroredColumns, type TableColumn } from './table-columns.ts';
export { missingGrants, readTableRights, tableGrants, type TableRight } from './table-rights.ts';
