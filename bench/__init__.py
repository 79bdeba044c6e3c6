"""How fast redrive is, as ratios: everything is measured beside its limit, in the same run, schema and durability."""
