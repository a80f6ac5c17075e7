"""An archive that is a deflated member of a wheel tells its files from its end."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from buildmatrix.locks.index import ends
from buildmatrix.locks.index.depth import Reading, read_parts
from buildmatrix.locks.index.wheels import _LocalWheel

METADATA = "Metadata-Version: 2.1\nName: alpha\nVersion: 1.0\n"
JAR = "alpha/lib/all.jar"


@pytest.fixture(autouse=True)
def no_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives of some MB stand for those that are larger than what is read beyond the share."""
    monkeypatch.setattr(ends, "CONTAINERS_WHOLE", 0)


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def jar(files: Mapping[str, bytes], entries: int) -> bytes:
    """An archive of more than is read whole, with many small classes."""
    chance = random.Random(7)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(entries):
            archive.writestr(f"org/alpha/p{number % 90}/C{number}.class", chance.randbytes(300))
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


def read(tmp_path: Path, data: bytes, most: int, method: int = zipfile.ZIP_DEFLATED) -> Reading:
    path = tmp_path / "alpha-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(JAR, data)
        archive.writestr("alpha-1.0.dist-info/METADATA", METADATA)
    with _LocalWheel(path) as source:
        return read_parts(source, "heads", most)


FEW, MANY = 200, 12_000
#: Less than the archive takes, and enough for its end.
SOME = 3_000_000


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
@pytest.mark.parametrize("entries", [FEW, MANY])
def test_a_large_binary_in_it_is_named_and_leaves_it_open(
    tmp_path: Path, entries: int, method: int
) -> None:
    data = jar({"lib/libalpha_gpu.so": b"\x7fELF" + noise(9_000_000)}, entries)
    reading = read(tmp_path, data, SOME, method)
    (unread,) = reading.inventory.unread
    assert unread.path == JAR
    assert "lib/libalpha_gpu.so (9000004 bytes)" in unread.why
    assert [one.path for one in reading.inventory.closed] == [JAR]
    assert reading.inventory.containers[0].files == entries + 1
    assert reading.limited


@pytest.mark.parametrize("name", ["data/table.csv", "data/agents.jl"])
@pytest.mark.parametrize("entries", [FEW, MANY])
def test_one_without_binaries_is_settled_by_its_list(
    tmp_path: Path, entries: int, name: str
) -> None:
    reading = read(tmp_path, jar({name: noise(9_000_000)}, entries), SOME)
    assert (reading.inventory.unread, reading.inventory.closed) == ((), ())
    assert not reading.limited


def test_small_binaries_in_it_leave_it_closed_and_not_unread(tmp_path: Path) -> None:
    files = {"data/table.csv": noise(9_000_000), "linux/libjni.so": b"\x7fELF" + noise(90_000)}
    reading = read(tmp_path, jar(files, FEW), SOME)
    assert reading.inventory.unread == ()
    assert [one.path for one in reading.inventory.closed] == [JAR]


def test_it_is_read_whole_where_there_is_enough(tmp_path: Path) -> None:
    data = jar({"lib/libalpha_gpu.so": b"no binary" + noise(9_000_000)}, FEW)
    reading = read(tmp_path, data, 20_000_000)
    assert (reading.inventory.unread, reading.inventory.closed) == ((), ())


def test_where_its_list_cannot_be_afforded_it_is_unread(tmp_path: Path) -> None:
    data = jar({"data/table.csv": noise(9_000_000)}, MANY)
    reading = read(tmp_path, data, 200_000)
    (unread,) = reading.inventory.unread
    assert "bytes of an archive were not read" in unread.why
    assert reading.limited


def test_one_that_is_no_zip_is_unread_unless_there_is_enough(tmp_path: Path) -> None:
    import tarfile

    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        info = tarfile.TarInfo("data.bin")
        info.size = 9_000_000
        archive.addfile(info, io.BytesIO(noise(info.size)))
    reading = read(tmp_path, file.getvalue(), SOME)
    assert [one.path for one in reading.inventory.unread] == [JAR]
    assert read(tmp_path, file.getvalue(), 20_000_000).inventory.unread == ()


def test_a_little_archive_that_stays_closed_leaves_the_verdict_open_and_the_run_decided(
    tmp_path: Path,
) -> None:
    reading = read(tmp_path, jar({"lib/alpha.bin": noise(2_000_000)}, FEW), 500_000)
    assert reading.inventory.unread == ()
    assert [file.path for file in reading.inventory.closed] == [JAR]
    assert reading.limited


@pytest.mark.parametrize("name", ["c/data/10", "c/lib/libalpha.so", "other/data/10"])
def test_tensors_of_a_checkpoint_are_no_binaries(tmp_path: Path, name: str) -> None:
    files = {"c/data.pkl": b"p", "c/data/0": noise(5_000_000), name: noise(4_000_000, 2)}
    reading = read(tmp_path, jar(files, 0), SOME)
    is_settled = name == "c/data/10"
    assert (reading.inventory.unread == ()) == is_settled
    assert (reading.inventory.closed == ()) == is_settled


def test_what_would_leave_the_run_undecided_is_read_within_an_allowance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = jar({"lib/libalpha.so": b"no binary" + noise(9_000_000)}, FEW)
    assert read(tmp_path, data, SOME).inventory.unread != ()
    monkeypatch.setattr(ends, "CONTAINERS_WHOLE", 10_000_000)
    reading = read(tmp_path, data, SOME)
    assert (reading.inventory.unread, reading.inventory.closed) == ((), ())
    # So nobody reads it again with a larger share.
    assert not reading.limited
