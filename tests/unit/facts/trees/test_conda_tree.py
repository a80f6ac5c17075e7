"""Archives of conda packages, listed and read as rattler does."""

from __future__ import annotations

from pathlib import Path

import pytest
import rattler
from conda_channel import Content, make_package
from rattler.package_streaming import extract

from buildmatrix.facts.trees.archive import BytesSource, Slice
from buildmatrix.facts.trees.base import File, Symlink, Unreadable
from buildmatrix.facts.trees.conda import CondaTree, read_info
from buildmatrix.locks.index.depth import read_package_list

FILES = {
    "lib/libdemo.so.1.2": Content(b"\x7fELF" + bytes(900)),
    "lib/libdemo.so.1": Content(link="libdemo.so.1.2"),
    "share/ünïcode name.txt": Content(b"text"),
    "bin/tool": Content(b"#!/bin/sh\n", mode=0o755),
}
ENDINGS = (".conda", ".tar.bz2")


def tree_of(data: bytes, name: str) -> CondaTree:
    return CondaTree(Slice(BytesSource(data), 0, len(data)), name)


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_list_is_that_of_rattler(tmp_path: Path, ending: str) -> None:
    file = make_package(tmp_path, "demo-1.0-h1_0", FILES, ending=ending)
    unpacked = tmp_path / "unpacked"
    extract(file, unpacked)
    theirs = rattler.PathsJson.from_package_directory(unpacked)
    info = read_info(BytesSource(file.read_bytes()), file.name)
    assert (info.name, info.version, info.build) == ("demo", "1.0", "h1_0")
    assert [(item.path, item.size, item.sha256) for item in info.files] == sorted(
        (str(item.relative_path), item.size_in_bytes or 0, item.sha256.hex())
        for item in theirs.paths
    )
    with tree_of(file.read_bytes(), file.name) as tree:
        assert tree.info == info
        for item in tree.walk():
            place = unpacked / item.path
            if isinstance(item, Symlink):
                assert item.target == str(place.readlink())
            elif isinstance(item, File) and not item.path.startswith("conda-meta/"):
                assert tree.read_bytes(item.path, 1 << 20) == place.read_bytes()


def test_links_are_listed_by_their_names(tmp_path: Path) -> None:
    """Binaries name a library as its link is called, and the list is all that may be read."""
    file = make_package(tmp_path, "demo-1.0-h1_0", FILES)
    reading = read_package_list(BytesSource(file.read_bytes()), file.name)
    closed = {item.path: (item.size, item.owner) for item in reading.inventory.closed}
    assert closed["lib/libdemo.so.1.2"] == (904, "conda:demo==1.0+h1_0")
    assert closed["lib/libdemo.so.1"] == (0, "conda:demo==1.0+h1_0")


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_ending_is_the_format(tmp_path: Path, ending: str) -> None:
    """Clients unpack by the name of the file; one that reads as both kinds smuggles nothing."""
    harmless, other = (
        make_package(tmp_path, f"{name}-1-0", FILES, ending=kind).read_bytes()
        for name, kind in (("zip", ".conda"), ("tar", ".tar.bz2"))
    )
    both = other + harmless
    try:
        name = read_info(BytesSource(both), f"x-1-0{ending}").name
    except Unreadable:
        return
    assert name == {".conda": "zip", ".tar.bz2": "tar"}[ending]
