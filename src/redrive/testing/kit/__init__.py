"""What every backend owes its callers: a contract for each port, in four tiers that are read in this order.

- The contracts, to subclass: `letters` (`LetterStoreContract`), `desk` (`DeskContract`) with `receipts`, `network` (`NetworkContract`).
- Tier 1, readable examples: `holding`, `finding`, `searching`, `claiming`, `waiting`, `mending`, `oddities`.
- Tier 2, generated command sequences against the memory store as oracle: `machine`.
- Tier 3, many at once: `owners` settle the same letters, `races` have one winner, `processes` share one store.
- Tier 4, kill -9: `kills`. For stores across a network: `network` with `cuts`, `silences` and `outages`, on `lines` that break.
- Queues have the same four: `queues` (`QueueContract`); `queue_putting`, `queue_leasing`, `queue_sweeping`, `queue_dying`,
  `queue_order`, `queue_looking`, `queue_catalogue`; `queue_machine`; `queue_owners` and `queue_histories`, which looks for an
  order that explains what many saw; `queue_processes` and `queue_kills`. Across a network: `queue_network`
  (`QueueNetworkContract`) with `queue_cuts`, `queue_silences`, `queue_hearing` and `queue_outages`, on `queue_lines`; each of
  `queue_steps` is made once or not at all.
- What they stand on: `clerk` uses a store on the test's own time, `crowd` sends many at once, `samples` makes letters by
  hand and `strategies` draws them. `lines` are cut at `instants`; `callers` give up on them, and a `town` outlives its engine.
"""
