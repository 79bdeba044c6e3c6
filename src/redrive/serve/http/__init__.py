"""HTTP: one `handle(path, format, body)` that every surface joins, and an ASGI adapter in front of it."""
