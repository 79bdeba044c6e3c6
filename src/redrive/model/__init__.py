"""Nouns and pure decisions: what a letter is and what may become of it. No I/O, no clock, no randomness."""
