"""What every backend owes its callers: a contract for each port, in four tiers that are read in this order.

- The contracts, to subclass: `letters` (`LetterStoreContract`), `desk` (`DeskContract`) with `receipts`, `network` (`NetworkContract`).
- Tier 1, readable examples: `holding`, `finding`, `searching`, `claiming`, `waiting`, `mending`, `oddities`.
- Tier 2, generated command sequences against the memory store as oracle: `machine`.
- Tier 3, many at once: `owners` settle the same letters, `races` have one winner, `processes` share one store.
- Tier 4, kill -9: `kills`. For stores across a network: `network` with `cuts`, `silences` and `outages`, on `lines` that break.
- What they stand on: `clerk` uses a store on the test's own time, `crowd` sends many at once, `samples` makes letters by
  hand and `strategies` draws them.
"""
