"""How few requests it takes to read on in a wheel of which the list is known."""

from __future__ import annotations

import random
import re
import zipfile
from pathlib import Path

import pytest
from index import IndexServer

from buildmatrix.locks.index import wheels
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.ranges import TAIL
from buildmatrix.locks.index.wheels import WheelReader
from buildmatrix.locks.model import Wheel

NAME = "alpha-1.0-py3-none-any.whl"


def noise(size: int, seed: int) -> bytes:
    """A comment of about `size` bytes that deflate makes little smaller."""
    return b"#" + random.Random(seed).randbytes(size).hex().encode() + b"\n"


def make(folder: Path, sources: dict[str, bytes]) -> Path:
    path = folder / NAME
    info = "alpha-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sources.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: alpha\nVersion: 1.0\n")
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in sources))
    return path


def locked(server: IndexServer, path: Path) -> Wheel:
    return Wheel(path.name, server.file_url(path.name), "", path.stat().st_size)


def package(modules: int, size: int) -> dict[str, bytes]:
    """A package whose modules import each other one after the other."""
    sources = {"alpha/__init__.py": b"from alpha import m0\n"}
    for number in range(modules):
        text = b"from alpha import m%d\n" % (number + 1) + noise(size, number)
        sources[f"alpha/m{number}.py"] = text
        # What nobody imports lies between, too far for neighbors to be one request.
        sources[f"alpha/tests{number}/data.py"] = noise(100_000, 1000 + number)
    return sources


def test_who_reads_on_does_not_ask_for_the_end_again(packages: Path, client: Client) -> None:
    path = make(packages, {"alpha/__init__.py": noise(200_000, 1)})
    with IndexServer(packages) as server:
        reader = WheelReader(client, None)
        wheel = locked(server, path)
        first = reader.read(wheel, "listing")
        second = reader.read(wheel, "heads", most=wheel.size)
        assert first.bytes_read == TAIL
        assert second.bytes_read == path.stat().st_size - TAIL
        assert server.count(server.path_of(NAME)) == 2
        assert second.inventory.closed == ()


def test_what_takes_too_much_memory_is_asked_for_again(
    packages: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "MOST_HELD", TAIL - 1)
    path = make(packages, {"alpha/__init__.py": noise(200_000, 1)})
    with IndexServer(packages) as server:
        reader = WheelReader(client, None)
        wheel = locked(server, path)
        reader.read(wheel, "listing")
        reader.read(wheel, "heads", most=wheel.size)
        assert server.count(server.path_of(NAME)) == 3


def test_modules_of_one_folder_come_together_however_many_stages_reach_them(
    packages: Path, client: Client
) -> None:
    path = make(packages, package(12, 5_000))
    with IndexServer(packages) as server:
        reader = WheelReader(client, None)
        wheel = locked(server, path)
        reader.read(wheel, "listing")
        asked = len(server.requests)
        facts = reader.read(wheel, "heads", most=500_000)
        # One request for each module, as they lie far apart, and all in the first of 12 stages.
        assert len(server.requests) - asked <= 13
        assert facts.bytes_read < 13 * 20_000
        lazy = {one.path for one in facts.inventory.closed if one.lazy}
        assert lazy == {one.path for one in facts.inventory.closed}
        assert all(re.fullmatch(r"alpha/tests\d+/data\.py", one) for one in lazy)
        assert len(lazy) == 12


def test_a_folder_with_much_in_it_is_brought_as_far_as_it_is_reached(
    packages: Path, client: Client
) -> None:
    sources = {"alpha/__init__.py": b"from alpha import m0\n"}
    sources |= {f"alpha/m{number}.py": noise(100_000, number) for number in range(30)}
    path = make(packages, sources)
    with IndexServer(packages) as server:
        reader = WheelReader(client, None)
        wheel = locked(server, path)
        reader.read(wheel, "listing")
        facts = reader.read(wheel, "heads", most=500_000)
        assert facts.bytes_read < 300_000
