"""Kill -9 on the whole way of a letter: a child lives it, is killed at a point or at any instant, and lives it again.

- `harness` sends one child after another on a way, and checks the law after each.
- `children` are its processes, which start in milliseconds.
- `points` are where a child can be killed: before, after and amid the verbs of ports.
- `way` is the way itself, over SQLite; `files` are its ends, a spool and a sink.
- `law` is what must hold whenever no process lives.
- `queues` puts such points at the verbs of an item's life in a queue.
- `journal` is a second way with its own law: the store is down, and letters wait in the journal.
"""
