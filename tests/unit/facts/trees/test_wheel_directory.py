"""The directory of a wheel: read with few reads, and not believed where it contradicts itself."""

from __future__ import annotations

import io
import struct
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from buildmatrix.facts.trees.base import File, Unreadable
from buildmatrix.facts.trees.wheel import Member, WheelTree
from buildmatrix.facts.trees.zip_archive import TAIL

ENTRY = b"PK\x01\x02"
END = b"PK\x05\x06"


@dataclass
class CountingFake:
    """Stands for a file on a server: counts what is asked of it."""

    data: bytes
    reads: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self.data[offset : offset + length]


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as zipped:
        for name, data in members.items():
            zipped.writestr(name, data)
    return buffer.getvalue()


def patched(data: bytes, mark: bytes, at: int, layout: str, *values: int) -> CountingFake:
    changed = bytearray(data)
    struct.pack_into(layout, changed, data.rindex(mark) + at, *values)
    return CountingFake(bytes(changed))


TWO = archive({"a.py": b"x = 1\n" * 100, "b.so": bytes(5000)})


def test_the_members_of_a_small_wheel_cost_one_read() -> None:
    source = CountingFake(TWO)
    tree = WheelTree(source)
    assert [(one.path, one.size) for one in tree.members] == [("a.py", 600), ("b.so", 5000)]
    assert all(one.compressed < one.size and one.crc for one in tree.members)
    assert source.reads == [(0, len(TWO))]


def test_a_long_directory_costs_a_second_read_of_what_is_missing() -> None:
    data = archive({f"folder/{number:05}.py": b"" for number in range(2000)})
    source = CountingFake(data)
    assert len(WheelTree(source).members) == 2000
    (first, second) = source.reads
    assert first == (len(data) - TAIL, TAIL)
    assert second[0] + second[1] == first[0]


def test_a_comment_of_any_length_hides_no_directory() -> None:
    buffer = io.BytesIO(TWO)
    with zipfile.ZipFile(buffer, "a") as zipped:
        zipped.comment = b"c" * 0xFFFF
    assert len(WheelTree(CountingFake(buffer.getvalue())).members) == 2


def test_bytes_in_front_of_the_archive_move_everything() -> None:
    tree = WheelTree(CountingFake(b"#!/bin/sh\n" * 50 + TWO))
    assert tree.read_bytes("b.so", 5000) == bytes(5000)


def test_sizes_and_offsets_of_zip64_are_read() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped, zipped.open("big.so", "w") as member:
        member.write(b"x" * 1000)
    data = bytearray(buffer.getvalue())
    at = data.rindex(ENTRY)
    end = data.rindex(END)
    sizes = struct.pack("<HHQQQ", 1, 24, 1000, 1000, 0)
    struct.pack_into("<II", data, at + 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<H", data, at + 30, len(sizes))
    struct.pack_into("<I", data, at + 42, 0xFFFFFFFF)
    directory = bytes(data[at:end]) + sizes
    record = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, len(directory), at)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, at + len(directory), 1)
    tail = struct.pack("<4s4H2IH", END, 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    whole = bytes(data[:at]) + directory + record + locator + tail
    tree = WheelTree(CountingFake(whole))
    assert list(tree.walk()) == [File("big.so", 1000)]
    assert tree.read_bytes("big.so", 2000) == b"x" * 1000


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (patched(TWO, END, 8, "<HH", 3, 3), "has 2 entries and says 3"),
        (patched(TWO, END, 12, "<I", 1 << 30), "directory says it has"),
        (patched(TWO, END, 12, "<I", 60_000), "outside of it"),
        (patched(TWO, END, 16, "<I", 1 << 30), "outside of it"),
        (patched(TWO, END, 4, "<H", 1), "several disks"),
        (patched(TWO, ENTRY, 28, "<H", 9999), "damaged"),
        (CountingFake(TWO[:-10]), "no end record"),
        (CountingFake(b""), "no end record"),
    ],
)
def test_a_directory_that_lies_is_refused_in_one_sentence(
    source: CountingFake, sentence: str
) -> None:
    with pytest.raises(Unreadable, match=sentence):
        WheelTree(source)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (patched(TWO, ENTRY, 42, "<I", 3), "not where it should be"),
        (patched(TWO, ENTRY, 42, "<I", 0), "another name"),
        (patched(TWO, ENTRY, 20, "<I", 1 << 20), "overlaps"),
    ],
)
def test_a_member_that_is_not_where_the_directory_says_is_refused(
    source: CountingFake, sentence: str
) -> None:
    tree = WheelTree(source)
    with pytest.raises(Unreadable, match=sentence), tree.open("b.so"):
        pass


def test_the_same_bytes_under_two_names_are_refused() -> None:
    # As bombs do that let many entries share one kernel of data.
    data = bytearray(archive({"aa": bytes(100_000), "bb": b"y"}))
    struct.pack_into("<I", data, data.rindex(ENTRY) + 42, 0)
    tree = WheelTree(CountingFake(bytes(data)))
    with pytest.raises(Unreadable, match="another name"), tree.open("bb"):
        pass


def test_the_beginning_of_a_member_takes_no_more_of_the_wheel_than_it_needs() -> None:
    source = CountingFake(archive({"big.so": bytes(range(256)) * 4000}, zipfile.ZIP_STORED))
    tree = WheelTree(source)
    source.reads.clear()
    assert tree.beginning("big.so", 4096, 1 << 20) == bytes(range(256)) * 16
    assert sum(length for _, length in source.reads) < 5000


def test_the_beginning_of_a_bomb_is_bounded() -> None:
    tree = WheelTree(CountingFake(archive({"bomb": bytes(64 << 20)})))
    assert tree.beginning("bomb", 64 << 10, 100_000) == bytes(100_000)


def test_a_packed_member_unpacks_to_its_bytes_and_is_checked() -> None:
    tree = WheelTree(CountingFake(TWO))
    assert tree.packed("a.py").unpack() == b"x = 1\n" * 100
    broken = patched(TWO, ENTRY, 16, "<I", 1)
    with pytest.raises(Unreadable, match="CRC"):
        WheelTree(broken).packed("b.so").unpack()


def test_a_path_and_a_source_give_the_same_tree(tmp_path: Path) -> None:
    file = tmp_path / "a.whl"
    file.write_bytes(TWO)
    with WheelTree(file) as tree:
        assert tree.members == WheelTree(CountingFake(TWO)).members
        assert isinstance(tree.members[0], Member)
