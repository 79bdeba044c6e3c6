"""Published conformance kits for the ports, samples to test with, and wrappers that inject faults. Needs `redrive[testing]`."""

import pytest

_KITS = ("claiming", "concurrency", "desk", "finding", "holding", "kills", "kit", "machine", "mending", "oddities")
# Asserts in a kit explain themselves only if pytest hears of the modules before they are imported.
pytest.register_assert_rewrite(*(f"{__name__}.{kit}" for kit in _KITS))

from redrive.testing.desk import DeskContract, DeskOpener  # noqa: E402  # after the line above
from redrive.testing.faults import Faulty, Moment, Outage, killing, raising, waiting  # noqa: E402
from redrive.testing.kit import Clerk, Opener  # noqa: E402
from redrive.testing.letters import LetterStoreContract  # noqa: E402
from redrive.testing.machine import LetterMachine  # noqa: E402

__all__ = [
    "Clerk",
    "DeskContract",
    "DeskOpener",
    "Faulty",
    "LetterMachine",
    "LetterStoreContract",
    "Moment",
    "Opener",
    "Outage",
    "killing",
    "raising",
    "waiting",
]
