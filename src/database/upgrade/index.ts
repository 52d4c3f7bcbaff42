export { dependantsScript, dropDependants, recreateDependants, type Dependant } from './dependants.ts';
export { drained } from './drain.ts';
export {
  manifestTables,
  manifestText,
  noteOwners,
  readManifests,
  recordBuild,
  recordOwners,
  type Manifests,
} from './manifest.ts';
export { resetGrants } from './grants.ts';
export {
  dropObjects,
  noChanges,
  numberedDrops,
  objectGuard,
  previewDependantViews,
  previewPlan,
  readDependantViews,
  readOthers,
  readPlan,
  requireObjects,
  type NumberedDrop,
  type ObjectChanges,
} from './plan.ts';
export {
  compareVersions,
  readInstallations,
  readReplacement,
  refuseOlder,
  type Build,
  type Installation,
} from './version.ts';
