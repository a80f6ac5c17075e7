"""Tar archives written block by block, and those that Python's tarfile reads otherwise than Go."""

from __future__ import annotations

import struct

from buildmatrix.facts.trees.archive import BytesSource, Slice
from buildmatrix.facts.trees.tar import TarMember, members

END = bytes(1024)
USTAR, GNU, V7 = b"ustar\x0000", b"ustar  \0", bytes(8)
ELF = b"\x7fELF\x02\x01\x01".ljust(64, b"\0")


def block(
    name: str | bytes,
    kind: bytes = b"0",
    size: int | bytes = 0,
    *,
    magic: bytes = USTAR,
    prefix: bytes = b"",
    link: bytes = b"",
    signed: bool = False,
) -> bytes:
    """A header with a right checksum."""
    name = name.encode() if isinstance(name, str) else name
    size = b"%011o\0" % size if isinstance(size, int) else size
    fields = [name, b"0000644\0", b"0000000\0", b"0000000\0", size, b"00000000000\0", b" " * 8]
    fields += [kind, link, magic, b"", b"", b"", b"", prefix, b""]
    data = struct.pack("100s8s8s8s12s12s8sc100s8s32s32s8s8s155s12s", *fields)
    total = sum(data) - (256 * sum(byte > 127 for byte in data) if signed else 0)
    return data[:148] + b"%06o\0 " % total + data[156:]


def padded(data: bytes) -> bytes:
    return data.ljust(len(data) + -len(data) % 512, b"\0")


def entry(name: str | bytes, data: bytes = ELF, **fields: bytes) -> bytes:
    return block(name, size=len(data), **fields) + padded(data)  # type: ignore[arg-type]


def record(key: str, value: str | bytes) -> bytes:
    body = (
        b" " + key.encode() + b"=" + (value.encode() if isinstance(value, str) else value) + b"\n"
    )
    return next(
        b"%d%b" % (length, body)
        for length in range(len(body) + 1, len(body) + 9)
        if len(b"%d%b" % (length, body)) == length
    )


def pax(*records: tuple[str, str | bytes], kind: bytes = b"x", name: str = "x/@PaxHeader") -> bytes:
    data = b"".join(record(key, value) for key, value in records)
    return block(name, kind, len(data)) + padded(data)


def long_name(text: str, kind: bytes = b"L") -> bytes:
    data = text.encode() + b"\0"
    return block("././@LongLink", kind, len(data), magic=GNU) + padded(data)


def read(data: bytes, *, as_dpkg: bool = False) -> list[TarMember]:
    """The entries of an archive. Raises `Unreadable`."""
    return list(members(Slice(BytesSource(data), 0, len(data)), as_dpkg=as_dpkg))


#: In the layer below those of `WITNESSES`.
BASE = "usr/lib/libcudart.so.12"
HIDING = "usr/lib/.wh.libcudart.so.12"
#: What Python makes of it → entries, and the path of the file that engines unpack of them.
WITNESSES: dict[str, tuple[bytes, str]] = {
    "an empty sparse file": (pax(("GNU.sparse.realsize", "0")) + entry("w/1.so"), "w/1.so"),
    "an empty file, as all are": (
        pax(("size", "0"), kind=b"g", name="pax_global_header") + entry("w/2.so"),
        "w/2.so",
    ),
    "a file without a name": (pax(("path", "")) + entry("w/3.so"), "w/3.so"),
    "a file of another name": (pax(("GNU.sparse.name", "w/not")) + entry("w/4.so"), "w/4.so"),
    "the first of two names": (
        pax(("path", HIDING)) + pax(("path", "w/5.so")) + entry("w/not"),
        "w/5.so",
    ),
    "a name of two headers": (
        pax(("path", HIDING)) + pax(("mtime", "1")) + entry("w/6.so"),
        "w/6.so",
    ),
    "a name of pax before that of GNU": (
        pax(("path", HIDING)) + long_name("w/7.so") + entry("w/not"),
        "w/7.so",
    ),
    "a name in a folder": (entry("w-8.so", magic=V7, prefix=b"usr/lib"), "w-8.so"),
    "a name of a global header that ends what came before": (
        pax(("path", HIDING))
        + pax(("comment", "x"), kind=b"g", name="pax_global_header")
        + entry("w/9.so"),
        "w/9.so",
    ),
    "a whiteout in a folder": (
        entry(".wh.libcudart.so.12", b"", magic=V7, prefix=b"usr/lib") + entry("w/10.so"),
        "w/10.so",
    ),
    "a file in a link": (
        block("w/12", b"1", 512, link=BASE.encode()) + entry("w/12.so"),
        "w/12.so",
    ),
}
