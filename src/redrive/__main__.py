"""`python -m redrive` is `redrive`."""

from redrive.serve.cli import main

main()
