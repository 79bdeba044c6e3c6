"""Thin surfaces: the command line, HTTP, and later the console."""
