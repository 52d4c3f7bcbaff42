import { beforeAll, describe, expect, it } from 'vitest';
import { canonicalKey } from '../../src/registry/index.ts';
import { RegistryScene } from './scene.ts';

let scene: RegistryScene;
beforeAll(async () => {
  scene = await RegistryScene.open();
});

/** Letters whose capital or small form depends on who is asked, alone and within a word. */
const letters = ['ß', 'ẞ', 'ı', 'İ', 'ſ', 'Σ', 'ς', 'σ', 'é', 'É', 'e\u0301', 'i\u0307', 'ŉ', 'ǆ', 'ﬁ', 'Ω', 'K', '𐐨'];
const words = ['AAPL', 'aapl', 'i', 'I', 'z|Z', 'straße', 'ΟΔΟΣ', ...letters, ...letters.map((one) => `a${one}Z`)];

describe('sound 12: the canonical form of a key', () => {
  it.each(['upper', 'lower', 'none'] as const)(
    'is the same in SQL and TypeScript, whatever the collation: %s',
    async (normalise) => {
      const collations = await scene.value<string[]>(
        `array(select quote_ident(collname) from pg_collation where collnamespace = 'pg_catalog'::regnamespace and collencoding in (-1, 6)
         and collname in ('default', 'C', 'POSIX', 'ucs_basic', 'C.utf8', 'pg_c_utf8', 'pg_unicode_fast', 'en_US.utf8', 'tr_TR.utf8', 'und-x-icu', 'tr-x-icu', 'de-x-icu', 'el-x-icu', 'lt-x-icu'))`,
      );
      expect(collations.length).toBeGreaterThan(3);
      const expected = words.map((word) => canonicalKey(word, normalise));
      for (const collation of collations) {
        const [row] = await scene.db.query<{ keys: string[] }>(
          `select array(select pgfresh_engine.canonical_key(word collate pg_catalog.${collation}, $2::text) from unnest($1::text[]) with ordinality as w(word, place) order by place) as keys`,
          [words, normalise],
        );
        expect([collation, row!.keys]).toEqual([collation, expected]);
      }
    },
  );

  it('changes A to Z and nothing else, once', () => {
    expect(canonicalKey('straße', 'upper')).toBe('STRAßE');
    expect(canonicalKey('STRASSE É', 'lower')).toBe('strasse É');
    for (const word of words)
      for (const normalise of ['upper', 'lower'] as const) {
        const once = canonicalKey(word, normalise);
        expect(canonicalKey(once, normalise)).toBe(once);
        expect(once.normalize('NFKD').length).toBe(word.normalize('NFKD').length);
      }
  });

  it('is what every function says of a key', async () => {
    await scene.add('upper', { normalise: 'upper' });
    await scene.db.query(`set pgfresh.user_id = 'u'`);
    for (const word of words.filter((one) => one !== 'z|Z')) {
      const key = canonicalKey(word, 'upper');
      expect(await scene.subscribe('u', word, 'upper')).toMatchObject({ key });
      expect(await scene.explain(word, 'upper')).toMatchObject({ key });
      expect(
        await scene.value<string>(`(select key from pgfresh_engine.want_pairs('{upper}', array[$1::text]))`, [word]),
      ).toBe(key);
      expect(
        await scene.value<string>(`(select key from pgfresh_engine.queue_refreshes('upper', array[$1::text]))`, [word]),
      ).toBe(key);
      expect(await scene.leave('u', word, 'upper')).toBe(true);
    }
  });
});
