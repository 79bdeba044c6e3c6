"""Bodies in files: whole or not there, and never another's."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from redrive.backends.files.bodies import FileBodies
from redrive.model.errors import StoreCorrupt, StoreFull, StoreNotWritable
from redrive.model.letter import BodyRef
from redrive.ports import Bodies
from redrive.ports.inline import drive

HOUR = timedelta(hours=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store.bodies"


@pytest.fixture
def bodies(folder: Path) -> FileBodies:
    return FileBodies(folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_kept_body_comes_back_as_it_was(bodies: FileBodies) -> None:
    port: Bodies = bodies

    async def story() -> None:
        for body in (b"", b"\0\xff" * 3, os.urandom(3_000_000)):
            ref = await port.keep("order-1", body)
            assert (ref.size, ref.sha256) == (len(body), hashlib.sha256(body).hexdigest())
            assert await port.load(ref) == body

    asyncio.run(story())


def test_its_verbs_can_be_driven_inline(bodies: FileBodies) -> None:
    ref = drive(bodies.keep("order-1", b"large"))
    assert drive(bodies.load(ref)) == b"large"
    assert drive(bodies.orphans([], timedelta(0), now=datetime.now(UTC) + HOUR)) == [ref.name]
    drive(bodies.drop([ref]))
    with pytest.raises(StoreCorrupt):
        drive(bodies.load(ref))


def test_folder_and_files_are_for_their_user_only(bodies: FileBodies, folder: Path) -> None:
    ref = asyncio.run(bodies.keep("order-1", b"large"))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / ref.name).stat().st_mode & 0o777 == 0o600


def test_the_same_name_and_body_again_change_nothing(bodies: FileBodies, folder: Path) -> None:
    first = asyncio.run(bodies.keep("order-1", b"large"))
    before = (folder / first.name).stat()
    assert asyncio.run(bodies.keep("order-1", b"large")) == first
    assert (folder / first.name).stat().st_mtime_ns == before.st_mtime_ns
    assert names(folder) == [first.name]


def test_another_body_under_the_same_name_leaves_the_first(bodies: FileBodies) -> None:
    first = asyncio.run(bodies.keep("order-1", b"first"))
    second = asyncio.run(bodies.keep("order-1", b"second"))
    assert asyncio.run(bodies.load(first)) == b"first"
    assert asyncio.run(bodies.load(second)) == b"second"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../../escape", "/etc/passwd", "a/b", "nul\0byte", "x" * 5000, "naïve ☃", "\udcff", "-rf", "CON"]
)
def test_no_name_leaves_the_folder(bodies: FileBodies, folder: Path, name: str) -> None:
    ref = asyncio.run(bodies.keep(name, b"large"))
    assert names(folder) == [ref.name]
    assert names(folder.parent) == [folder.name]
    assert asyncio.run(bodies.load(ref)) == b"large"


def test_names_that_look_alike_on_disk_stay_apart(bodies: FileBodies, folder: Path) -> None:
    refs = [asyncio.run(bodies.keep(name, b"large")) for name in ("a/b", "a_b", "A_B", "a b")]
    assert len({ref.name.lower() for ref in refs}) == 4 == len(names(folder))


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "secret", "a\0b", "..", ""])
def test_a_forged_reference_reaches_nothing_outside_the_folder(bodies: FileBodies, folder: Path, name: str) -> None:
    asyncio.run(bodies.keep("order-1", b"large"))
    secret = folder.parent / "secret"
    secret.write_bytes(b"secret")
    (folder / "secret").write_bytes(b"secret")
    forged = BodyRef(name=name, size=6, sha256=hashlib.sha256(b"secret").hexdigest())
    with pytest.raises(StoreCorrupt):
        asyncio.run(bodies.load(forged))
    asyncio.run(bodies.drop([forged]))
    assert secret.exists()
    assert (folder / "secret").exists()


def test_a_missing_body_is_said_to_be_missing(bodies: FileBodies, folder: Path) -> None:
    ref = asyncio.run(bodies.keep("order-1", b"large"))
    (folder / ref.name).unlink()
    with pytest.raises(StoreCorrupt, match="missing"):
        asyncio.run(bodies.load(ref))


@pytest.mark.parametrize("damage", [b"", b"lArge", b"large and more"])
def test_a_damaged_body_is_never_handed_out_and_keeping_it_again_mends_it(
    bodies: FileBodies, folder: Path, damage: bytes
) -> None:
    ref = asyncio.run(bodies.keep("order-1", b"large"))
    (folder / ref.name).write_bytes(damage)
    with pytest.raises(StoreCorrupt, match="not what was kept"):
        asyncio.run(bodies.load(ref))
    assert asyncio.run(bodies.keep("order-1", b"large")) == ref
    assert asyncio.run(bodies.load(ref)) == b"large"


def test_a_reference_with_another_digest_is_refused(bodies: FileBodies) -> None:
    ref = asyncio.run(bodies.keep("order-1", b"large"))
    with pytest.raises(StoreCorrupt):
        asyncio.run(bodies.load(replace(ref, sha256="0" * 64)))


def test_dropping_removes_bodies_and_passes_over_those_that_are_gone(bodies: FileBodies, folder: Path) -> None:
    gone = BodyRef(name="order-0." + "0" * 32 + ".body", size=1, sha256="")
    asyncio.run(bodies.drop([gone]))
    first, second = (asyncio.run(bodies.keep(name, b"large")) for name in ("order-1", "order-2"))
    asyncio.run(bodies.drop([gone, first]))
    assert names(folder) == [second.name]


def test_a_folder_that_cannot_be_made_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreNotWritable, match="mend its rights"):
            asyncio.run(FileBodies(folder).keep("order-1", b"large"))


DISK_FULL = """
import resource, sys
from pathlib import Path
from redrive.backends.files.bodies import FileBodies
from redrive.model.errors import StoreFull
from redrive.ports.inline import drive

bodies = FileBodies(Path(sys.argv[1]))
drive(bodies.keep("small", b"x" * 10))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
try:
    drive(bodies.keep("large", b"x" * 10_000))
except StoreFull as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


def test_a_full_disk_leaves_nothing_half_written(bodies: FileBodies, folder: Path) -> None:
    child = subprocess.run([sys.executable, "-c", DISK_FULL, folder], capture_output=True, text=True, check=True, timeout=60)
    assert "no space is left" in child.stdout, child.stderr
    assert [name.split(".")[0] for name in names(folder)] == ["small"]
    assert asyncio.run(bodies.load(asyncio.run(bodies.keep("large", b"x" * 10_000)))) == b"x" * 10_000


def test_the_device_that_is_always_full_is_reported_as_such(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other way to a real ENOSPC without rights to mount: the descriptor of the new file is that of /dev/full."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    really_open = os.open

    def opened(path: Path, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith(".tmp"):
            os.close(really_open(path, flags, mode))
            return really_open("/dev/full", os.O_WRONLY)
        return really_open(path, flags, mode)

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(StoreFull):
        asyncio.run(FileBodies(folder).keep("order-1", b"large"))
    assert names(folder) == []


KILLED = """
import sys
from pathlib import Path
from redrive.backends.files.bodies import FileBodies
from redrive.ports.inline import drive

bodies = FileBodies(Path(sys.argv[1]))
for number in range(1_000_000):
    ref = drive(bodies.keep(f"order-{number}", b"%d " % number * 20_000))
    print(ref.name, ref.size, ref.sha256, flush=True)
"""


def test_a_process_killed_while_writing_leaves_whole_bodies_and_what_the_doctor_finds(bodies: FileBodies, folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, folder], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(20)]
        child.kill()
        lines += child.stdout.readlines()
    kept = [BodyRef(name=name, size=int(size), sha256=sha256) for name, size, sha256 in map(str.split, lines)]
    for ref in kept:
        assert len(asyncio.run(bodies.load(ref))) == ref.size
    known = [ref.name for ref in kept]
    orphans = asyncio.run(bodies.orphans(known, HOUR, now=datetime.now(UTC) + 2 * HOUR))
    assert sorted([*orphans, *known]) == names(folder)


def test_the_doctor_finds_old_files_that_no_letter_names(bodies: FileBodies, folder: Path) -> None:
    later = datetime.now(UTC) + 2 * HOUR
    assert asyncio.run(bodies.orphans([], HOUR, now=later)) == []
    known, orphan = (asyncio.run(bodies.keep(name, b"large")) for name in ("order-1", "order-2"))
    unfinished = f".{known.name}.{'0' * 16}.tmp"
    (folder / unfinished).write_bytes(b"lar")
    (folder / "notes.txt").write_text("somebody else's")
    assert asyncio.run(bodies.orphans([known.name], HOUR, now=later)) == sorted([orphan.name, unfinished])
    assert asyncio.run(bodies.orphans([known.name], HOUR)) == []
    asyncio.run(bodies.drop([BodyRef(name=name, size=0, sha256="") for name in (orphan.name, unfinished)]))
    assert names(folder) == sorted([known.name, "notes.txt"])
