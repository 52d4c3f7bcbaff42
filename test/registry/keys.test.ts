import { beforeAll, describe, expect, it } from 'vitest';
import { canonicalKey } from '../../src/registry/index.ts';
import vectors from './key-vectors.json' with { type: 'json' };
import { RegistryScene } from './scene.ts';

let scene: RegistryScene;
beforeAll(async () => {
  scene = await RegistryScene.open();
});

// The vectors have words as given and as both definitions must spell them, also letters whose other case depends on the collation.
const words = vectors.map(({ given }) => given);
const expected = {
  upper: vectors.map(({ upper }) => upper),
  lower: vectors.map(({ lower }) => lower),
  none: words,
};

describe('sound 12: the canonical form of a key', () => {
  it.each(['upper', 'lower', 'none'] as const)(
    'is the same in SQL and TypeScript, whatever the collation: %s',
    async (normalise) => {
      const collations = await scene.value<string[]>(
        `array(select quote_ident(collname) from pg_collation where collnamespace = 'pg_catalog'::regnamespace and collencoding in (-1, 6)
         and collname in ('default', 'C', 'POSIX', 'ucs_basic', 'C.utf8', 'pg_c_utf8', 'pg_unicode_fast', 'en_US.utf8', 'tr_TR.utf8', 'und-x-icu', 'tr-x-icu', 'de-x-icu', 'el-x-icu', 'lt-x-icu'))`,
      );
      expect(collations.length).toBeGreaterThan(3);
      expect(words.map((word) => canonicalKey(word, normalise))).toEqual(expected[normalise]);
      for (const collation of collations) {
        const [row] = await scene.db.query<{ keys: string[] }>(
          `select array(select pgfresh_engine.canonical_key(word collate pg_catalog.${collation}, $2::text) from unnest($1::text[]) with ordinality as w(word, place) order by place) as keys`,
          [words, normalise],
        );
        expect([collation, row!.keys]).toEqual([collation, expected[normalise]]);
      }
    },
  );

  it('is itself spelled so', () => {
    for (const normalise of ['upper', 'lower'] as const)
      expect(expected[normalise].map((word) => canonicalKey(word, normalise))).toEqual(expected[normalise]);
  });

  it('is what every function says of a key', async () => {
    await scene.add('upper', { normalise: 'upper' });
    await scene.db.query(`set pgfresh.user_id = 'u'`);
    for (const { given: word, upper: key } of vectors.filter(({ given }) => given !== 'z|Z')) {
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

  it('is what marks say of a row, whatever the collation of its column', async () => {
    const collation = await scene.value<string>(
      `(select quote_ident(collname) from pg_collation where collnamespace = 'pg_catalog'::regnamespace and collencoding in (-1, 6)
        and collname in ('en_US.utf8', 'C.utf8', 'und-x-icu', 'pg_c_utf8') order by collname limit 1)`,
    );
    // Else any definition would pass.
    expect(await scene.value(`upper('é' collate pg_catalog.${collation})`)).toBe('É');
    await scene.db.query(
      `create table letters (word text collate pg_catalog.${collation} primary key, fetched_at timestamptz)`,
    );
    const type = await scene.add('letters', { table_name: 'letters', key_columns: ['word'], normalise: 'upper' });
    await scene.db.query('select pgfresh_engine.watch_changes(array[$1::int])', [type]);
    await scene.db.query('insert into letters select unnest($1::text[])', [words]);
    const marked = await scene.value<string[]>('(select keys from pgfresh_engine.change where type_id = $1::int)', [
      type,
    ]);
    expect(new Set(marked)).toEqual(new Set(expected.upper));
  });
});
