"""redrive: the dead-letter layer for Python."""
