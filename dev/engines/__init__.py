"""The real engines that redrive is tested with: installed once, started on free ports, stopped without a trace.

`python -m dev.engines up redis postgres` for people, `tests/engines.py` for tests. See docs/engines.md.
"""
