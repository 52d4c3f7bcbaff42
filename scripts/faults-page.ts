import { faultOf, faults, type FaultKind } from '../examples/market/provider/faults/index.ts';

/** The page about the faults of the market example's provider. */
export function faultsPage(): string {
  const kinds = Object.keys(faults) as FaultKind[];
  const byOutcome = Map.groupBy(kinds, (kind) => faultOf(kind).outcome);
  const rows = [...byOutcome].flatMap(([outcome, ofIt]) =>
    ofIt.map((kind) => {
      const { what, routes } = faultOf(kind);
      return `| \`${outcome}\` | \`${kind}\` | ${what} | ${routes?.join(', ') ?? 'all'} |`;
    }),
  );
  return `# Lying answers

The provider of the [market example](market-example.md) can lie in ${kinds.length} ways. Each is one line of a table in \`examples/market/provider/faults\`,
with the outcome that pgfresh must come to. Whatever it is, the row that was there stays, unless the outcome is \`fresh\`.

| outcome | kind | what the provider does | routes |
|---|---|---|---|
${rows.join('\n')}
`;
}
