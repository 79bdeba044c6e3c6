"""Several systems in one store: each sees its own letters."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import UnknownLetter, blocking, wiring
from redrive.model.query import EVERYTHING
from redrive.settings import Settings


def opened(folder: Path, namespace: str) -> blocking.DeadLetters:
    return blocking.DeadLetters(wiring.connect(Settings(store=f"sqlite:{folder}/shared.db", namespace=namespace)))


def test_a_namespace_sees_counts_purges_and_redrives_only_its_own(tmp_path: Path) -> None:
    with opened(tmp_path, "shop") as shop, opened(tmp_path, "bank") as bank:
        ours = shop.capture("a", ValueError("bad"), source="orders", id="1").letter
        theirs = bank.capture("b", ValueError("bad"), source="orders", id="1").letter
        assert ours.id != theirs.id
        assert [letter.id for letter in shop.find()] == [ours.id]
        assert (shop.count(), bank.count(), shop.letters.count()) == (1, 1, 2)
        assert shop.get(str(ours.id)[:12]).id == ours.id
        with pytest.raises(UnknownLetter):
            shop.get(str(theirs.id)[:12])
        worked: list[str] = []
        shop.redrive(worked.append, query=EVERYTHING)
        assert worked == ["a"]
        assert shop.purge(EVERYTHING) == 1
        assert [letter.id for letter in bank.find()] == [theirs.id]
