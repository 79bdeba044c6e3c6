"""Moving house across every engine: what arrives at the end is what was there at the beginning."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path

import pytest

from redrive import blocking
from redrive.testing import START, letter
from tests.unit.shell import Shell


@pytest.mark.engine("postgres", "redis")
def test_letters_go_round_all_stores_and_come_back_the_same(tmp_path: Path, namespace: str) -> None:
    shell = Shell(tmp_path)
    with shell.store() as dlq:
        dlq.hold([letter(str(number), due=START, body=bytes([number]) * 3000, tags=("a", "\0")) for number in range(50)])
        large = dlq.capture(b"x" * 3_000_000, ValueError("large"), source="files").letter
        kept = sorted(one.id for one in dlq.find())
    postgres = f"{os.environ['REDRIVE_TEST_POSTGRES']}?schema={namespace}"
    redis = f"{os.environ['REDRIVE_TEST_REDIS']}?prefix={namespace}"
    way = ["sqlite:redrive.db", postgres, redis, "sqlite:back.db"]
    checksums = set()
    for source, target in pairwise(way):
        said = shell("copy", source, target).out
        assert "Copied 51 letters." in said
        checksums.add(re.findall(r"checksum (\w+)", said)[0])
    assert len(checksums) == 1
    with blocking.open(f"sqlite:{tmp_path}/back.db") as dlq:
        assert sorted(one.id for one in dlq.find()) == kept
        assert dlq.body(dlq.get(large.id)) == b"x" * 3_000_000
