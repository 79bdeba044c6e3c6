"""A pytest plugin: programs that tests start hear Ctrl-C, also where the run itself was begun in the background.

A shell without job control has what it starts there ignore Ctrl-C, and all that this starts in its turn.
"""

from __future__ import annotations

import signal

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Where the run was begun: what is not ignored there is not ignored by those it starts.
    if not hasattr(config, "workerinput") and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
