"""A wheel that is read whole as it arrives, its directory last."""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
from collections.abc import Iterator

import pytest

from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.locks.index.wheels import read_all

LOCAL = b"PK\x03\x04"
ENTRY = b"PK\x01\x02"
FILES = {
    "a/__init__.py": b"import ctypes\n" * 20,
    "a-1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: a\nVersion: 1\n",
    "a-1.dist-info/RECORD": b"a/__init__.py,,\n",
}


class Unseekable(io.BytesIO):
    """Makes zipfile write sizes behind the data, as tools do that write to a pipe."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise OSError


def archive(method: int = zipfile.ZIP_DEFLATED, *, piped: bool = False, **more: bytes) -> bytes:
    buffer = Unseekable() if piped else io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as zipped:
        for name, data in {**FILES, **more}.items():
            zipped.writestr(name, data)
    return buffer.getvalue()


def chunks(data: bytes, size: int = 1000) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def read(data: bytes) -> Inventory:
    return read_all(chunks(data))[0].inventory


@pytest.mark.parametrize("step", [1, 7, 4096, 1 << 20])
@pytest.mark.parametrize("piped", [False, True])
def test_the_size_of_the_pieces_changes_nothing(step: int, piped: bool) -> None:
    reading, _ = read_all(chunks(archive(piped=piped), step))
    assert [one.name for one in reading.inventory.distributions] == ["a"]
    assert [one.path for one in reading.members] == sorted(FILES)
    assert reading.inventory.closed == reading.inventory.unread == ()


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_members_whose_sizes_follow_them_are_read(method: int) -> None:
    data = archive(method, piped=True, **{"a/x.ptx": b".version 8\n.target sm_90\n"})
    assert struct.unpack_from("<H", data, 6)[0] & 8
    (found,) = read(data).artefacts
    assert found.device_code[0].arch == "compute_90"


def patched(data: bytes, mark: bytes, at: int, layout: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(layout, changed, data.index(mark) + at, value)
    return bytes(changed)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (patched(archive(), ENTRY, 42, "<I", 5), "its header is not where it should be"),
        (patched(archive(), ENTRY, 10, "<H", 14), "neither stored nor deflated"),
        (patched(archive(), ENTRY, 8, "<H", 1), "encrypted"),
        (archive()[:-30], "no readable ZIP archive"),
        (archive()[:200], "no readable ZIP archive"),
        (b"PK\x03\x04", "no readable ZIP archive"),
        (b"<html>sorry</html>", "no readable ZIP archive"),
        (b"", "no readable ZIP archive"),
    ],
)
def test_an_archive_that_contradicts_itself_is_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(Unreadable, match=sentence):
        read(data)


@pytest.mark.parametrize(("at", "value"), [(16, 5), (20, 5), (24, 5)])
def test_a_member_that_is_not_as_the_directory_says_is_unread(at: int, value: int) -> None:
    inventory = read(patched(archive(), ENTRY, at, "<I", value))
    assert [one.path for one in inventory.unread] == ["a/__init__.py"]


def test_a_file_that_the_directory_does_not_name_is_refused() -> None:
    # What installers unpack, and what tools that read from the start see, would differ.
    data = archive()
    hidden = archive(**{"a/evil.so": b"x" * 100})
    body, directory = hidden[: hidden.index(ENTRY)], data[data.index(ENTRY) :]
    end = bytearray(directory)
    at = directory.index(b"PK\x05\x06")
    struct.pack_into("<I", end, at + 16, len(body))
    with pytest.raises(Unreadable, match=r"behind a-1\.dist-info/RECORD are not in the wheel's"):
        read(body + bytes(end))


def test_a_bomb_is_refused_before_it_is_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buildmatrix.facts.trees.wheel.INFLATION_ALLOWANCE", 1 << 16)
    for piped in (False, True):
        data = archive(piped=piped, **{f"a/{n}.so": bytes(1 << 20) for n in range(4)})
        with pytest.raises(Unreadable, match="ZIP bomb"):
            read(data)


def test_a_member_with_a_wrong_crc_costs_no_other() -> None:
    data = archive(zipfile.ZIP_STORED, **{"a/b.so": b"y" * 5000, "a/c.ptx": b".target sm_80\n" * 9})
    broken = data.replace(b"y" * 5000, b"y" * 4999 + b"z", 1)
    inventory = read(broken)
    assert [(one.path, "CRC" in one.why) for one in inventory.unread] == [("a/b.so", True)]
    assert [one.path for one in inventory.artefacts] == ["a/c.ptx"]


def test_a_large_file_that_needs_random_access_is_read_from_what_is_kept_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = b".version 8\n.target sm_90\n".ljust(300_000, b"/")
    whole = read(archive(**{"a/x.ptx": kernel}))
    monkeypatch.setattr("buildmatrix.facts.trees.zip_archive.LARGEST_HELD", 1000)
    passed = read(archive(**{"a/x.ptx": kernel}))
    assert passed.artefacts == whole.artefacts != ()


def test_a_part_that_has_passed_by_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # An object whose tables stand at its end, inside of a static library.
    member = bytearray(b"\x7fELF\x02\x01\x01".ljust(100_000, b"\0"))
    struct.pack_into("<HHIQQQIHHHHHH", member, 16, 1, 62, 1, 0, 0, 99_000, 0, 64, 0, 0, 64, 3, 0)
    struct.pack_into("<IIQQQQ", member, 99_064, 0, 1, 2, 0, 500, 10_000)
    head = b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (b"x.o/", 0, 0, 0, 0o644, len(member))
    data = archive(**{"a/x.a": b"!<arch>\n" + head + member})
    whole = read(data)
    for name, value in {"LARGEST_HELD": 1000, "BLOCK": 1024, "HEAD": 64}.items():
        monkeypatch.setattr(f"buildmatrix.facts.trees.zip_archive.{name}", value)
    passed = read(data)
    assert (passed.artefacts, passed.unread) == (whole.artefacts, whole.unread)
    assert [one.path for one in passed.artefacts] == ["a/x.a"]


def test_the_hash_is_that_of_all_bytes() -> None:
    data = archive()
    assert read_all(chunks(data))[1] == hashlib.sha256(data).hexdigest()
