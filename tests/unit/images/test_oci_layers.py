from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from buildmatrix.base.errors import UndecidedError
from buildmatrix.images.layers import LayerEntry, StoredLayer, layer_writer
from buildmatrix.images.layout import OciLayout

ENTRIES: list[tuple[LayerEntry, bytes]] = [
    (LayerEntry("a", "folder", 0o700, user=10001, group=44), b""),
    (LayerEntry("a/b/c.txt", size=3), b"abc"),
    (LayerEntry("a/b/d", "symlink", 0o777, target="c.txt"), b""),
    (LayerEntry("a/b/e", "hardlink", target="a/b/c.txt"), b""),
    (LayerEntry("a-b", "file", 0o755, 0), b""),
    (LayerEntry("long/" + "n" * 200 + "/" + "m" * 200, size=1), b"x"),
    (LayerEntry("ü/\udcff", size=600), b"y" * 600),
]


def made(folder: Path, workers: int = 2) -> StoredLayer:
    layout = OciLayout(folder)
    with ThreadPoolExecutor(workers) as pool:
        with layer_writer(layout, pool) as writer:
            for entry, data in ENTRIES:
                writer.add(entry, [data[:1], data[1:]])
            big = bytes(range(256)) * 32769  # several blocks, and a rest
            writer.add(LayerEntry("\uffff", size=len(big)), [big])
        return writer.layer


def unpacked(folder: Path, layer: StoredLayer) -> bytes:
    return gzip.decompress(OciLayout(folder).path(layer.descriptor.digest).read_bytes())


def test_a_layer_holds_what_was_added(tmp_path: Path) -> None:
    layer = made(tmp_path)
    data = unpacked(tmp_path, layer)
    assert layer.diff_id == f"sha256:{hashlib.sha256(data).hexdigest()}"
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8") as tar:
        members = {member.name: member for member in tar}
        content = tar.extractfile("a/b/c.txt")
        assert content is not None and content.read() == b"abc"
    assert list(members)[:4] == ["a", "a/b", "a/b/c.txt", "a/b/d"]
    assert {*members} == {
        *(entry.path for entry, _ in ENTRIES), "a/b", "long", "long/" + "n" * 200, "ü", "\uffff"
    }  # fmt: skip
    for member in members.values():
        assert (member.uname, member.gname, member.mtime) == ("", "", 315532800)
    assert (members["a"].mode, members["a"].uid, members["a"].gid) == (0o700, 10001, 44)
    assert (members["a/b"].mode, members["a/b"].uid) == (0o755, 0)
    assert members["a/b/d"].linkname == "c.txt" and members["a/b/e"].islnk()


def test_plain_names_need_no_extended_headers(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool, layer_writer(OciLayout(tmp_path), pool) as writer:
        writer.add(LayerEntry("opt/venv/" + "n" * 80 + "/" + "m" * 90, size=1), [b"x"])
    assert b"PaxHeader" not in unpacked(tmp_path, writer.layer)


# Equal on every machine, whatever it says of itself

SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_oci_layers import made
layer = made(Path(sys.argv[1]), int(sys.argv[3]))
print(layer.descriptor.digest, layer.diff_id)
"""
#: Of Python's tar headers: the same from Python 3.11 to 3.14.
DIFF_ID = "sha256:8a395969fe1b5a2a0f1b89622ecb150cd5b87c558d4c961110c08c81bf887b0f"


def test_the_same_entries_are_the_same_bytes_everywhere(tmp_path: Path) -> None:
    outcomes = set()
    for number, (zone, locale, mask) in enumerate(
        [("UTC", "C", 0o022), ("Asia/Tokyo", "C.UTF-8", 0o077), ("America/Lima", "POSIX", 0)]
    ):
        environment = {**os.environ, "TZ": zone, "LC_ALL": locale, "PYTHONHASHSEED": str(number)}
        if number == 2:
            environment["SOURCE_DATE_EPOCH"] = "1700000000"
        command = [
            sys.executable,
            "-c",
            SCRIPT,
            tmp_path / str(number),
            Path(__file__).parent,
        ]
        run = subprocess.run(
            [*command, str(number + 1)],
            env=environment, umask=mask, capture_output=True, text=True, cwd=tmp_path,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        outcomes.add(run.stdout)
    assert len(outcomes) == 1
    assert outcomes.pop().split()[1] == DIFF_ID


# What must not be in a layer


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/../b", "./a", "a/."])
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(ValueError, match="cannot be added"),
        layer_writer(OciLayout(tmp_path), pool) as writer,
    ):
        writer.add(LayerEntry(path))
    assert not any(file.is_file() for file in tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("path", "target"),
    [(".wh.a", ""), ("a/.wh..wh..opq", ""), (".wh.a/b", ""), ("a\0b", ""), ("a", "b\0c")],
)
def test_a_name_that_says_something_else_in_a_layer_is_refused(
    tmp_path: Path, path: str, target: str
) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(UndecidedError, match=r"remove other files|has a NUL"),
        layer_writer(OciLayout(tmp_path), pool) as writer,
    ):
        writer.add(LayerEntry(path, "symlink" if target else "file", target=target))


def test_entries_come_once_and_in_order(tmp_path: Path) -> None:
    for paths in (["b", "a"], ["a", "a"], ["a/b", "a"]):
        with (
            ThreadPoolExecutor(1) as pool,
            pytest.raises(ValueError, match="cannot be added"),
            layer_writer(OciLayout(tmp_path), pool) as writer,
        ):
            for path in paths:
                writer.add(LayerEntry(path))


@pytest.mark.parametrize("kind", ["file", "symlink"])
def test_nothing_lies_in_what_is_no_folder(tmp_path: Path, kind: str) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(ValueError, match="not a folder"),
        layer_writer(OciLayout(tmp_path), pool) as writer,
    ):
        writer.add(LayerEntry("lib", kind, target="usr/lib"))
        writer.add(LayerEntry("lib/x"))


@pytest.mark.parametrize("content", [b"", b"xx"])
def test_content_of_another_size_leaves_no_layer(tmp_path: Path, content: bytes) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(ValueError, match="instead of 1"),
        layer_writer(OciLayout(tmp_path), pool) as writer,
    ):
        writer.add(LayerEntry("a", size=1), [content])
    assert not any(file.is_file() for file in tmp_path.rglob("*"))
