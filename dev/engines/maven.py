"""Engines that are jars: their libraries by way of Maven, and a launcher of ours where they have no program."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path
from xml.sax.saxutils import escape

from dev.engines.install import Apt, Built, run

JAVA = 17
OLD = ("focal", "jammy", "bullseye")
"""Releases whose default Java is older than that."""


def _javac() -> str | None:
    """A Java compiler that is new enough."""
    found = shutil.which("javac")
    if found is None:
        return None
    told = Path(found).resolve().parents[1] / "release"
    version = re.search(r'JAVA_VERSION="(\d+)', told.read_text()) if told.exists() else None
    return found if version is None or int(version[1]) >= JAVA else None


def _jdk() -> Apt:
    system = Path("/etc/os-release")
    is_old = system.exists() and any(f"VERSION_CODENAME={name}\n" in system.read_text() for name in OLD)
    return Apt((f"openjdk-{JAVA}-jdk-headless" if is_old else "default-jdk-headless",), _javac)


def jars(name: str, artifacts: list[str], launcher: Path | None = None) -> Built:
    """The artifacts (`group:name:version`) with all that they need, in a folder; a launcher is compiled beside them."""
    pom = _pom(artifacts)
    return Built(
        name=name,
        recipe=pom + (launcher.read_text() if launcher else ""),
        build=partial(_build, pom, launcher),
        told=f"Maven {artifacts[0]}",
        tools=(_jdk(), Apt(("maven",), lambda: shutil.which("mvn"))),
    )


def java(libraries: Path, folder: Path, memory: str, *words: str) -> list[str]:
    """The command that runs a class with those libraries, and leaves nothing outside its folder."""
    frugal = [f"-Xms{memory}", f"-Xmx{memory}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    tidy = ["-XX:-UsePerfData", f"-Djava.io.tmpdir={folder}", f"-Djna.tmpdir={folder}"]
    return ["java", *frugal, *tidy, "-cp", f"{libraries}/*:{libraries}", *words]


def _pom(artifacts: list[str]) -> str:
    fields = ("groupId", "artifactId", "version")
    dependencies = [
        "".join(f"<{field}>{escape(value)}</{field}>" for field, value in zip(fields, artifact.split(":"), strict=True))
        for artifact in artifacts
    ]
    return "\n".join(
        [
            "<project>",
            "<modelVersion>4.0.0</modelVersion>",
            "<groupId>redrive</groupId><artifactId>engine</artifactId><version>1</version><packaging>pom</packaging>",
            "<dependencies>",
            *(f"<dependency>{dependency}</dependency>" for dependency in dependencies),
            "</dependencies>",
            "</project>\n",
        ]
    )


def _build(pom: str, launcher: Path | None, folder: Path) -> None:
    (folder / "pom.xml").write_text(pom)
    copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    run(["mvn", "-q", "-B", *copy], folder)
    if launcher is not None:
        run(["javac", "-cp", f"{folder}/*", "-d", str(folder), str(launcher)], folder)
