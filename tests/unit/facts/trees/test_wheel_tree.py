from __future__ import annotations

import io
import struct
import tempfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from buildmatrix.facts.trees import wheel, zip_archive
from buildmatrix.facts.trees.base import File, Trouble, Unreadable
from buildmatrix.facts.trees.wheel import WheelTree, install_path
from buildmatrix.facts.trees.zip_archive import Inflated


def make(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def paths(tree: WheelTree) -> list[str]:
    return [entry.path for entry in tree.walk() if isinstance(entry, File)]


def troubles(tree: WheelTree) -> list[Trouble]:
    return [entry for entry in tree.walk() if isinstance(entry, Trouble)]


def test_members_are_listed_sorted_and_read_at_any_offset(tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    file = make(tmp_path / "a.whl", {"b.so": data, "a.py": b"x = 1\n"})
    with WheelTree(file) as tree:
        assert list(tree.walk()) == [File("a.py", 6), File("b.so", len(data))]
        with tree.open("b.so") as source:
            assert source.read(200_000, 10) == data[200_000:200_010]
            assert source.read(0, 4) == data[:4]
            assert source.read(len(data) - 2, 100) == data[-2:]
            assert source.bytes_read == len(data)


def test_a_look_at_the_head_inflates_no_more_than_the_head(tmp_path: Path) -> None:
    file = make(tmp_path / "a.whl", {"big": b"x" * (1 << 22)})
    with WheelTree(file) as tree, tree.open("big") as source:
        source.read(0, 64)
        assert source.bytes_read == zip_archive.HEAD


@pytest.mark.parametrize(
    ("member", "path"),
    [
        ("pkg/lib.so", "pkg/lib.so"),
        ("mkl-2026.2.0.data/data/lib/libmkl_rt.so.3", "lib/libmkl_rt.so.3"),
        ("x-1.data/platlib/x/_c.so", "x/_c.so"),
        ("x-1.data/purelib/x/a.py", "x/a.py"),
        ("x-1.data/scripts/tool", "bin/tool"),
        ("x-1.data/unknown/tool", "x-1.data/unknown/tool"),
        ("data/data/tool", "data/data/tool"),
    ],
)
def test_data_folders_are_mapped_to_where_an_installer_puts_them(member: str, path: str) -> None:
    assert install_path(member) == path


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "x-1.data/data/../../x", "./x"])
def test_names_that_leave_the_wheel_are_reported_and_not_read(tmp_path: Path, name: str) -> None:
    with WheelTree(make(tmp_path / "a.whl", {name: b"evil", "good": b"good"})) as tree:
        (trouble,) = troubles(tree)
        assert trouble.path == name
        assert paths(tree) == ["good"]


def test_a_name_that_comes_twice_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "a.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x", b"first")
        with pytest.warns(UserWarning):
            archive.writestr("x", b"second")
    with WheelTree(file) as tree:
        (trouble,) = troubles(tree)
        assert "more than once" in trouble.why
        assert tree.read_bytes("x", 100) == b"second"


def test_a_wrong_crc_is_told_before_any_byte_after_the_head_counts(tmp_path: Path) -> None:
    file = tmp_path / "a.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("x", b"a" * 200_000)
    data = bytearray(file.read_bytes())
    data[150_000] ^= 1
    file.write_bytes(data)
    with (
        WheelTree(file) as tree,
        tree.open("x") as source,
        pytest.raises(Unreadable, match="CRC"),
    ):
        source.read(100_000, 1)


def test_a_truncated_member_is_told(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("x", b"a" * 1000)
    data = bytearray(buffer.getvalue())
    at = data.rindex(b"PK\x01\x02")
    struct.pack_into("<II", data, at + 20, 5000, 5000)  # both sizes, in the central directory
    file = tmp_path / "a.whl"
    file.write_bytes(data)
    with WheelTree(file) as tree, pytest.raises(Unreadable):
        tree.read_bytes("x", 10_000)


def test_a_zip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "INFLATION_ALLOWANCE", 1 << 20)
    file = make(tmp_path / "a.whl", {f"bomb{n}": b"\0" * (1 << 20) for n in range(8)})
    read = 0
    with WheelTree(file) as tree, pytest.raises(Unreadable, match="ZIP bomb"):
        for path in paths(tree):
            read += len(tree.read_bytes(path, 1 << 21))
    assert 0 < read <= wheel.MOST_INFLATION * file.stat().st_size + (1 << 20)


def test_a_member_that_says_it_is_giant_is_refused(tmp_path: Path) -> None:
    file = make(tmp_path / "a.whl", {"x": b"small"})
    data = bytearray(file.read_bytes())
    struct.pack_into("<I", data, data.rindex(b"PK\x01\x02") + 24, 0xFFFF_FFF0)
    file.write_bytes(data)
    with WheelTree(file) as tree, pytest.raises(Unreadable), tree.open("x"):
        pass


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    file = make(tmp_path / "a.whl", {"x": b"secret"})
    data = bytearray(file.read_bytes())
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    file.write_bytes(data)
    with WheelTree(file) as tree, pytest.raises(Unreadable, match="encrypted"), tree.open("x"):
        pass


def test_a_giant_central_directory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.whl"
    size = zip_archive.LARGEST_DIRECTORY + 1
    with file.open("wb") as stream:
        stream.truncate(size)
        stream.seek(size)
        stream.write(struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, size, 0, 0))
    with pytest.raises(Unreadable, match="directory"):
        WheelTree(file)


@pytest.mark.parametrize("data", [b"", b"not a zip", b"PK\x05\x06" + b"\xff" * 18])
def test_what_is_no_archive_is_told_in_one_sentence(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "a.whl"
    file.write_bytes(data)
    with pytest.raises(Unreadable, match="no readable ZIP archive"):
        WheelTree(file)


def noise(size: int) -> bytes:
    """Bytes that deflate makes half as long, the same each time."""
    state, out = 1, bytearray()
    while len(out) < size:
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        out += f"{state:016x}".encode()
    return bytes(out[:size])


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_archive, "LARGEST_HELD", 100)
    monkeypatch.setattr(zip_archive, "BLOCK", 4096)
    monkeypatch.setattr(zip_archive, "HEAD", 64)


@pytest.mark.usefixtures("small_window")
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_a_large_member_is_read_anywhere_and_in_any_order(tmp_path: Path, method: int) -> None:
    data = noise(200_001)
    file = tmp_path / "a.whl"
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("before", b"x")
        archive.writestr("big", data)
    with WheelTree(file) as tree, tree.open("big") as source:
        for offset, length in (
            (0, 64),
            (199_990, 100),
            (4090, 10),
            (100_000, 30_000),
            (4095, 2),
            (16_384, 1),
            (200_001, 5),
        ):
            assert source.read(offset, length) == data[offset : offset + length]
        assert b"".join(source.read(at, 5000) for at in range(0, len(data), 5000)) == data


@pytest.mark.usefixtures("small_window")
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_a_large_member_with_a_wrong_crc_is_told_at_its_end(tmp_path: Path, method: int) -> None:
    file = tmp_path / "a.whl"
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("big", noise(200_000))
    data = bytearray(file.read_bytes())
    at = data.rindex(b"PK\x01\x02") + 16
    data[at : at + 4] = b"\0\0\0\0"
    file.write_bytes(data)
    with WheelTree(file) as tree, tree.open("big") as source:
        assert isinstance(source, Inflated)
        source.read(100_000, 1)
        with pytest.raises(Unreadable, match="CRC"):
            source.finish()


@pytest.mark.usefixtures("small_window")
@pytest.mark.parametrize("difference", [-1000, 1000])
def test_a_large_member_of_another_size_than_it_says_is_told(
    tmp_path: Path, difference: int
) -> None:
    file = make(tmp_path / "a.whl", {"big": noise(200_000)})
    data = bytearray(file.read_bytes())
    struct.pack_into("<I", data, data.rindex(b"PK\x01\x02") + 24, 200_000 + difference)
    file.write_bytes(data)
    with WheelTree(file) as tree, tree.open("big") as source:
        assert isinstance(source, Inflated)
        with pytest.raises(Unreadable):
            source.finish()


@pytest.mark.usefixtures("small_window")
def test_a_large_member_is_inflated_once_and_no_further_than_it_is_read(tmp_path: Path) -> None:
    data = noise(200_000)
    file = make(tmp_path / "a.whl", {"big": data})
    with WheelTree(file) as tree, tree.open("big") as source:
        assert source.read(0, 10) == data[:10]
        assert source.bytes_read == 64
        source.read(50_000, 10)
        assert source.bytes_read == 50_010
        for offset in (180_000, 60_000, 120_000, 0):
            assert source.read(offset, 3000) == data[offset : offset + 3000]
        assert source.bytes_read == 183_000


def test_a_large_member_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor has it a name while it is read."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    file = make(tmp_path / "a.whl", {"big": noise(9 << 20)})
    with WheelTree(file) as tree, tree.open("big") as source:
        source.read(8 << 20, 1 << 20)
        assert list(folder.iterdir()) == []


def test_a_large_member_takes_little_memory(tmp_path: Path) -> None:
    file = tmp_path / "a.whl"
    part, parts = noise(1 << 20), 5 * zip_archive.LARGEST_HELD >> 20
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("big", "w") as member,
    ):
        for _ in range(parts):
            member.write(part)
    tracemalloc.start()
    try:
        with WheelTree(file) as tree, tree.open("big") as source:
            for number in range(parts):
                source.read(number << 20, 1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * zip_archive.LARGEST_HELD
