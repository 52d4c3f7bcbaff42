export { duration } from './duration.ts';
export { defineConfig, loadConfig, type LoadOptions } from './load.ts';
export { isLoopback } from './loopback.ts';
export { nearMiss } from './near-miss.ts';
export { resolveConfig, type Origin, type ResolvedConfig } from './resolve.ts';
export { settingNames, settings, type Config, type SettingName, type Settings } from './settings.ts';
