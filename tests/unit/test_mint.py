"""Ids are new, whoever mints them."""

from __future__ import annotations

import os
import threading
from uuid import RFC_4122, UUID

import pytest

from redrive.engine.mint import minted


def test_ids_are_of_version_four_and_never_the_same() -> None:
    ids = [minted() for _ in range(2_000)]
    assert len(set(ids)) == len(ids)
    assert {(id.version, id.variant) for id in ids} == {(4, RFC_4122)}


def test_threads_mint_their_own() -> None:
    ids: list[UUID] = []
    threads = [threading.Thread(target=lambda: ids.extend(minted() for _ in range(500))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 2_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_does_not_go_on_with_its_parents_roll() -> None:
    minted()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, minted().bytes)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    theirs = UUID(bytes=os.read(read, 16))
    os.close(read)
    assert theirs not in {minted() for _ in range(1_000)}
