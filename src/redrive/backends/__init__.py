"""One folder a technology, in it one file for each port it implements. Backends are dumb: no logs, no retries, no metrics."""
