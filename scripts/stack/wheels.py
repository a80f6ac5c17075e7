"""Pinned wheels from the package index, fetched by pip and checked by digest."""

from __future__ import annotations

import fnmatch
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import apt
from .errors import StackError
from .layout import Layout
from .process import output, replace, run

_PYTHON = "3.11"  # the bases' own; it only matters for wheels with compiled modules


@dataclass(frozen=True)
class Wheel:
    """One wheel file, its digest, and which members go where.

    `take` maps a pattern over member paths to the folder that receives the matches. As
    many leading folders as the pattern has are dropped, what lies deeper is kept.
    """

    file: str
    sha256: str
    take: Mapping[str, str]

    @property
    def requirement(self) -> str:
        """The line that makes pip take this file and no other."""
        name, version = self.file.split("-")[:2]
        return f"{name}=={version} --hash=sha256:{self.sha256}"

    @property
    def platform(self) -> str:
        """A platform tag under which pip accepts the file."""
        return self.file.removesuffix(".whl").rpartition("-")[2].partition(".")[0]


def fetch(wheel: Wheel, layout: Layout) -> Path:
    """The wheel's file, from the cache or from the index."""
    kept = layout.cache / "wheels" / wheel.sha256 / wheel.file
    if kept.exists() and apt.sha256(kept) == wheel.sha256:
        return kept
    with tempfile.TemporaryDirectory(dir=layout.drafts) as name:
        folder = Path(name)
        replace(folder / "requirements.txt", wheel.requirement + "\n")
        options = {
            "--only-binary": ":all:",
            "--platform": wheel.platform,
            "--python-version": _PYTHON,
            "--dest": str(folder / "out"),
            "--requirement": str(folder / "requirements.txt"),
        }
        flags = [word for option in options.items() for word in option]
        run(
            [*_pip(), "download", "--no-deps", "--require-hashes", *flags],
            log=layout.log("pip-download"),
            why=f"pip cannot download {wheel.file}",
        )
        kept.parent.mkdir(parents=True, exist_ok=True)
        (folder / "out" / wheel.file).replace(kept)
    if apt.sha256(kept) != wheel.sha256:
        raise StackError(f"{wheel.file} does not have the digest that bases.toml pins.")
    return kept


def _pip() -> list[str]:
    """How to call pip here: this interpreter's own, else the one on PATH."""
    if output([sys.executable, "-m", "pip", "--version"]) is not None:
        return [sys.executable, "-m", "pip"]
    pip = shutil.which("pip3") or shutil.which("pip")
    if pip is None:
        raise StackError("pip is missing; install it for this Python, or Debian's python3-pip.")
    return [pip]


def unpack(wheel: Wheel, path: Path, root: Path) -> None:
    """Lay the chosen members out below a root.

    A wheel cannot hold links, so vendors ship `lib.so`, `lib.so.1` and `lib.so.1.2` as
    three copies; they become one file and two links again, as in the vendors' images.
    """
    with zipfile.ZipFile(path) as archive:
        for pattern, destination in wheel.take.items():
            members = fnmatch.filter(archive.namelist(), pattern)
            members = [member for member in members if not member.endswith("/")]
            if not members:
                raise StackError(f"{wheel.file} has no member {pattern}.")
            copies: dict[tuple[str, int, int], list[str]] = {}
            for member in members:
                info = archive.getinfo(member)
                key = member.rpartition("/")[0], info.CRC, info.file_size
                copies.setdefault(key, []).append(member)
            for group in copies.values():
                _lay_out(archive, group, pattern.count("/"), root / destination.lstrip("/"))


def _lay_out(archive: zipfile.ZipFile, copies: list[str], depth: int, folder: Path) -> None:
    """Write the copy with the longest name and link the others to it."""
    copies = sorted(copies, key=len, reverse=True)
    targets = [folder.joinpath(*member.split("/")[depth:]) for member in copies]
    targets[0].parent.mkdir(parents=True, exist_ok=True)
    with archive.open(copies[0]) as source, targets[0].open("wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
    mode = archive.getinfo(copies[0]).external_attr >> 16 & 0o777
    targets[0].chmod(0o755 if mode & 0o111 or "/scripts/" in copies[0] else 0o644)
    for link in targets[1:]:
        if ".so" in link.name:
            link.symlink_to(targets[0].name)
        else:
            shutil.copy2(targets[0], link)
