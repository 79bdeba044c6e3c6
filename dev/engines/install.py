"""Install what is missing, once: never by two processes at the same time, and never half."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev.engines.engine import EngineMissing


def cache() -> Path:
    """Where downloads and builds are kept: outside the checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "redrive-engines"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("true", "1")


@contextmanager
def only_one(what: str) -> Iterator[None]:
    """No other process of this user does the same at the same time."""
    with (cache() / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Apt:
    """A package of Debian and Ubuntu, known by a program that it brings."""

    packages: tuple[str, ...]
    program: Callable[[], str | None]

    @property
    def is_installed(self) -> bool:
        return self.program() is not None

    @property
    def told(self) -> str:
        return f"apt {' '.join(self.packages)}"

    @property
    def lacks(self) -> tuple[str, ...]:
        return () if self.is_installed else self.packages

    def install(self) -> None:
        if self.is_installed:
            return
        with only_one("apt"):
            if not self.is_installed:
                apt_install(self.packages)
        if not self.is_installed:
            raise EngineMissing(f"{self.told} was installed, but its program is not to be found")


def apt_install(packages: tuple[str, ...]) -> None:
    """Let apt install them, if this process may."""
    line = f"apt-get install -y {' '.join(packages)}"
    if not shutil.which("apt-get"):
        raise EngineMissing(f"install {' and '.join(packages)} with your system's package manager")
    rights = _rights()
    if rights is None:
        raise EngineMissing(f"run: sudo {line}")
    install = ["install", "-y", "--no-install-recommends", *packages]
    if not any(Path("/var/lib/apt/lists").glob("*_Packages*")):
        _apt(rights, "update")
    if _apt(rights, *install):
        return
    # The lists may be older than what the mirrors still have.
    _apt(rights, "update")
    if not _apt(rights, *install):
        raise EngineMissing(f"apt could not install it; run: sudo apt-get update && sudo {line}")


def _rights() -> list[str] | None:
    """What to put before apt-get; None: this process must not install."""
    if os.geteuid() == 0:
        return []
    if in_ci() and shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        return ["sudo", "-n"]
    return None


def _apt(rights: list[str], *words: str) -> bool:
    command = [*rights, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", *words]
    with (cache() / "apt.log").open("ab") as log:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log).returncode == 0


@dataclass(frozen=True)
class Built:
    """Something that is downloaded or built into a folder of the cache. Another recipe is another folder."""

    name: str
    recipe: str
    """Whatever the result depends on, as text."""
    build: Callable[[Path], None]
    """Fills an empty folder; raises if that does not succeed."""
    told: str
    tools: tuple[Apt, ...] = ()
    """What the build, and the engine, need."""

    @property
    def folder(self) -> Path:
        return cache() / f"{self.name}-{hashlib.sha256(self.recipe.encode()).hexdigest()[:12]}"

    @property
    def is_installed(self) -> bool:
        return self.folder.is_dir() and all(tool.is_installed for tool in self.tools)

    @property
    def lacks(self) -> tuple[str, ...]:
        return tuple(package for tool in self.tools for package in tool.lacks)

    def install(self) -> None:
        for tool in self.tools:
            tool.install()
        with only_one(self.name):
            if self.folder.is_dir():
                return
            # Only what is whole gets its name: a build that was cut short stays a nameless folder, which the next one removes.
            for remains in cache().glob(f".{self.name}-*"):
                shutil.rmtree(remains, ignore_errors=True)
            unfinished = Path(tempfile.mkdtemp(prefix=f".{self.name}-", dir=cache()))
            try:
                self.build(unfinished)
                unfinished.rename(self.folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)


def run(command: list[str], folder: Path, **environment: str) -> None:
    """Run a step of a build. Raises `EngineMissing` with the end of what it said."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        surroundings = {**os.environ, "TMPDIR": scratch, **environment}
        done = subprocess.run(command, cwd=folder, env=surroundings, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        last = "\n  ".join((done.stdout + done.stderr).splitlines()[-15:])
        raise EngineMissing(f"{' '.join(command[:3])} … failed:\n  {last}")
