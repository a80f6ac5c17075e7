"""Entries of tar archives are those that Go's archive/tar finds, or the archive is refused.

`tests/integration/test_other_clients.py` asks podman and umoci, and `tests/fuzz/tar_headers.py`
compares with Go itself.
"""

from __future__ import annotations

import io
import tarfile

import pytest
from raw_archives import (
    BASE,
    ELF,
    END,
    GNU,
    WITNESSES,
    block,
    entry,
    long_name,
    padded,
    pax,
    read,
    record,
)

from buildmatrix.facts.trees import tar
from buildmatrix.facts.trees.archive import BytesSource, Slice
from buildmatrix.facts.trees.archive_layers import LayeredTree
from buildmatrix.facts.trees.base import File, Unreadable
from buildmatrix.facts.trees.decompression import ENDLESS, ForwardSource

FILE = entry("a")


@pytest.mark.parametrize("python_sees", WITNESSES)
def test_headers_that_python_obeys_and_engines_do_not(python_sees: str) -> None:
    data, path = WITNESSES[python_sees]
    layers = [Slice(BytesSource(part), 0, len(part)) for part in (entry(BASE) + END, data + END)]
    tree = LayeredTree(layers)
    files = {item.path: item.size for item in tree.walk() if isinstance(item, File)}
    assert files.items() >= {BASE: 64, path: 64}.items()
    assert not any(".wh." in name or "not" in name for name in files)
    with tree.open(path) as source:
        assert source.read(0, 64) == ELF


def names(data: bytes) -> list[str]:
    return [member.name for member in read(data)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (pax(("comment", "x")) + FILE, ["a"]),
        (pax(("path", "b")) + FILE + entry("c"), ["b", "c"]),
        (pax(("path", "b"), ("path", "c")) + FILE, ["c"]),
        (long_name("b") + long_name("c") + pax(("path", "d")) + FILE, ["c"]),
        (entry("c", prefix=b"a/b"), ["a/b/c"]),
        (entry("a\0b"), ["a"]),
        (entry(b"\xff", ELF), ["\udcff"]),
        # Go before 1.8 wrote a prefix where GNU has times; where those are numbers, there is none.
        (entry("b", magic=GNU, prefix=b"a"), ["a/b"]),
        (entry("b", magic=GNU, prefix=b"00000000001\x0000000000002\0"), ["b"]),
        (block(b"\xe9", signed=True), ["\udce9"]),
        (block("a", size=b"\x80".ljust(12, b"\0")) + FILE, ["a", "a"]),
        (block("a", size=b"  0 \0".ljust(12, b"\0")) + FILE, ["a", "a"]),
        # What has no data may say so.
        (block("a", b"5", 512) + block("b", b"3", 1 << 30) + FILE, ["a", "b", "a"]),
        # An end mark ends it, whatever follows.
        (FILE + END + FILE, ["a"]),
        (pax(("path", "b")), []),
        (block("p", b"x", 8) + padded(b"+8 a=bc\n") + FILE, ["a"]),
    ],
)
def test_names(data: bytes, expected: list[str]) -> None:
    assert names(data + END) == expected
    chunks = (data[at : at + 100] for at in range(0, len(data), 100))
    passing = ForwardSource([*chunks, END])
    assert [item.name for item in tar.members(Slice(passing, 0, ENDLESS))] == expected


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("a", b"\0", "file"),
        ("a/", b"\0", "folder"),
        ("a/", b"0", "file"),
        ("a", b"1", "hardlink"),
        ("a", b"2", "symlink"),
        ("a", b"3", "device"),
        ("a", b"4", "device"),
        ("a", b"5", "folder"),
        ("a", b"6", "other"),
    ],
)
def test_types(name: str, kind: bytes, expected: str) -> None:
    (member,) = read(block(name, kind, link=b"t") + END)
    assert (member.kind, member.target) == (expected, "t" if "link" in expected else "")


def test_a_sparse_file_has_its_name_and_is_not_read() -> None:
    records = ("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.name", "b")
    sparse, after = read(pax(*records) + FILE + entry("c") + END)
    assert (sparse.name, sparse.kind, sparse.data, after.name) == ("b", "file", None, "c")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (FILE, "no end mark"),
        (FILE[:-1], "truncated"),
        (FILE[:700], "truncated"),
        (FILE + bytes(512) + FILE, "half of one"),
        (FILE + bytes(512) + b"x", "half of one"),
        (FILE[:150] + b"7" + FILE[151:], "checksum"),
        (FILE + b"x" * 512, "a number that is none"),
        *(((block("a", kind) + END), "not unpacked") for kind in (b"7", b"S", b"V", b"D", b"X")),
        *((pax(("path", path), kind=b"g") + FILE, "engines differ") for path in ("a", ".wh.a")),
        (pax(("comment", "x"), kind=b"g", name="usr/lib/x.so") + FILE, "engines differ"),
        (pax(("uid", "x"), kind=b"g") + FILE, "a number"),
        *(
            (pax(("size", size)) + FILE, "entry 1, at byte 0")
            for size in ("-1", "1e3", "0x10", "9" * 19, " 1", "1_0")
        ),
        *(
            (pax((key, "x")) + FILE, "entry 1, at byte 0")
            for key in ("uid", "gid", "mtime", "atime", "ctime")
        ),
        (pax(("mtime", "1.x")) + FILE, "mtime"),
        (pax(("path", "a\0b")) + FILE, "none"),
        (pax(("a\0b", "x")) + FILE, "none"),
        (pax(("", "x")) + FILE, "none"),
        *(
            (block("p", b"x", 512) + padded(bad) + FILE, "length")
            for bad in (b"5", b"9 a=b\nx", b"3 a")
        ),
        (block("p", b"x", (1 << 20) + 1) + FILE, "bytes"),
        (block("p", b"L", 1) + bytes(512) + FILE, "empty name"),
        (pax(("SCHILY.xattr.trusted.overlay.opaque", "y")) + block("a", b"5"), "overlay"),
        (pax(("SCHILY.xattr.user.overlay.redirect", "/b")) + block("a", b"5"), "overlay"),
        (pax(("GNU.sparse.map", "0,1")) + block("a", b"5"), "sparse"),
        (pax(("GNU.sparse.numbytes", "1")) + FILE, "map"),
        *(
            (block("a", size=field.ljust(12, b"\0")), "entry 1, at byte 0")
            for field in (b"8", b"1 2", b"-1", b"+1", b"0o7", b"\0001", b"\xff" * 12, b"\x90" * 12)
        ),
    ],
)
def test_what_is_broken_or_ambiguous_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read(data + (b"" if "truncated" in why or "no end" in why else END))


def test_the_place_of_an_entry_is_told() -> None:
    with pytest.raises(Unreadable, match=r"entry 2, at byte 1024: .* type 'S'"):
        read(FILE + pax(("path", "b")) + block("c", b"S") + END)


def test_many_entries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar, "MAX_MEMBERS", 2)
    assert len(read(2 * FILE + END)) == 2
    with pytest.raises(Unreadable, match="more than 2 entries"):
        read(3 * FILE + END)


@pytest.mark.parametrize(
    "data",
    [pax(("path", "b")) + FILE, entry("a/"), entry("b", magic=GNU, prefix=b"a"), pax(kind=b"g")],
)
def test_what_dpkg_reads_otherwise_is_refused(data: bytes) -> None:
    assert read(long_name("n") + entry("a", prefix=b"p") + END, as_dpkg=True)[0].name == "n"
    read(data + END)
    with pytest.raises(Unreadable):
        read(data + END, as_dpkg=True)


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_python_writes_is_read(format: int) -> None:
    buffer = io.BytesIO()
    path = "/".join("d" * 60 for _ in range(3)) + "/\xe4"
    with tarfile.open(fileobj=buffer, mode="w", format=format) as out:
        info = tarfile.TarInfo(path)
        info.mode, info.uid, info.gid, info.size = 0o4755, 12345, 67, 3
        out.addfile(info, io.BytesIO(b"abc"))
    (member,) = read(buffer.getvalue())
    assert member.name == path and member.data is not None and member.data.read(0, 9) == b"abc"
    assert member.attributes == tar.Attributes(0o4755, 12345, 67)


def test_a_record_that_says_its_length() -> None:
    assert record("path", "x" * 90).startswith(b"99 ")
