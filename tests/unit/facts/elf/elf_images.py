"""Writes small ELF files and device-code containers, field by field, for the tests of `elf`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

BASE = 0x10000
PROGBITS, STRTAB, DYNAMIC, NOTE, NOBITS, DYNSYM = 1, 3, 6, 7, 8, 11
ALLOC, EXEC = 2, 4


@dataclass(frozen=True)
class Part:
    """A section to be written; `size` differs from the data's only in sections without bytes."""

    name: str
    data: bytes = b""
    type: int = PROGBITS
    flags: int = ALLOC
    size: int | None = None


@dataclass(frozen=True)
class Image:
    """An ELF file to be written."""

    bits: int = 64
    little_endian: bool = True
    machine: int = 62
    type: int = 3
    flags: int = 0
    abi_version: int = 0
    needed: Sequence[str] = ()
    #: Tag to string: 14 soname, 15 rpath, 29 runpath.
    strings: Mapping[int, str] = field(default_factory=dict)
    #: Tag to number.
    numbers: Mapping[int, int] = field(default_factory=dict)
    #: Symbols that it needs: name, and version and library where it has one. A name with a `?` is
    #: weak.
    undefined: Sequence[tuple[str, str | None, str | None]] = ()
    #: Symbols that it defines, and its own versions, the soname first.
    defined: Sequence[str] = ()
    versions: Sequence[str] = ()
    parts: Sequence[Part] = ()
    #: Whether the dynamic section stands behind all parts, where linkers put it.
    dynamic_last: bool = False
    interpreter: str | None = None
    section_headers: bool = True
    #: Of segments with notes: 8 where they are GNU properties of a 64-bit object.
    note_align: int = 4

    def build(self) -> bytes:
        order = "<" if self.little_endian else ">"
        word = "Q" if self.bits == 64 else "I"
        header_size = 64 if self.bits == 64 else 52
        segment_format = order + ("IIQQQQQQ" if self.bits == 64 else "IIIIIIII")
        section_format = order + f"II{word}{word}{word}{word}II{word}{word}"
        dynamic = bool(
            self.needed or self.strings or self.numbers or self.undefined or self.defined
        )
        notes = [part for part in self.parts if part.type == NOTE]
        segment_count = 1 + dynamic + len(notes) + bool(self.interpreter)
        body = bytearray(header_size + segment_count * struct.calcsize(segment_format))

        placed: list[tuple[Part, int, int]] = []

        def place(part: Part, link: int = 0) -> int:
            body.extend(bytes(-len(body) % 16))
            placed.append((part, len(body), link))
            body.extend(part.data)
            return len(body) - len(part.data)

        strings = bytearray(b"\0")

        def string(value: str) -> int:
            strings.extend(value.encode() + b"\0")
            return len(strings) - len(value.encode()) - 1

        entries = [(1, string(name)) for name in self.needed]
        entries += [(tag, string(value)) for tag, value in self.strings.items()]
        entries += list(self.numbers.items())
        segments: list[tuple[int, int, int]] = []
        tables = tuple(self._symbol_tables(order, string))

        def place_dynamic() -> None:
            data = b"".join(struct.pack(order + word * 2, *entry) for entry in entries)
            at = place(Part(".dynamic", data, DYNAMIC), link=1)
            segments.append((2, at, len(data)))

        if dynamic:
            at = place(Part(".dynstr", bytes(strings), STRTAB))
            entries += [(5, BASE + at), (10, len(strings))]
            for tag, part, number in tables:
                entries.append((tag, BASE + place(part, link=1)))
                if number:
                    entries.append((tag + 1, number))
            entries.append((0, 0))
            if not self.dynamic_last:
                place_dynamic()
        if self.interpreter:
            data = self.interpreter.encode() + b"\0"
            segments.append((3, place(Part(".interp", data)), len(data)))
        for part in self.parts:
            at = place(part)
            if part.type == NOTE:
                segments.append((4, at, len(part.data)))
        if dynamic and self.dynamic_last:
            place_dynamic()
        segments.insert(0, (1, 0, len(body)))

        sections_at = count = names_index = 0
        if self.section_headers:
            names = bytearray(b"\0")
            rows = []
            for part, offset, link in [*placed, (Part(".shstrtab", b"", STRTAB, 0), 0, 0)]:
                at = names.find(part.name.encode() + b"\0")
                if at < 0:
                    at = len(names)
                    names += part.name.encode() + b"\0"
                size = len(part.data) if part.size is None else part.size
                address = BASE + offset if part.flags & ALLOC else 0
                rows.append([at, part.type, part.flags, address, offset, size, link, 0, 1, 0])
            rows[-1][4:6] = len(body), len(names)
            body += names
            sections_at = len(body)
            count, names_index = len(rows) + 1, len(rows)
            zero = [0] * 10
            if count >= 0xFF00:
                zero[5], zero[6] = count, names_index
                count, names_index = 0, 0xFFFF
            for row in [zero, *rows]:
                body += struct.pack(section_format, *row)

        ident = b"\x7fELF" + bytes(
            [2 if self.bits == 64 else 1, 1 if self.little_endian else 2, 1, 0, self.abi_version]
        )
        head = ident.ljust(16, b"\0") + struct.pack(
            order + f"HHI{word}{word}{word}IHHHHHH",
            self.type, self.machine, 1, 0, header_size, sections_at, self.flags, header_size,
            struct.calcsize(segment_format), segment_count,
            struct.calcsize(section_format), count, names_index,
        )  # fmt: skip
        body[: len(head)] = head
        for index, (kind, offset, size) in enumerate(segments):
            address = BASE + offset
            align = self.note_align if kind == 4 else 4
            row = (
                (kind, 5, offset, address, address, size, size, align)
                if self.bits == 64
                else (kind, offset, address, address, size, size, 5, align)
            )
            at = header_size + index * struct.calcsize(segment_format)
            struct.pack_into(segment_format, body, at, *row)
        return bytes(body)

    def _symbol_tables(
        self, order: str, string: Callable[[str], int]
    ) -> Iterator[tuple[int, Part, int]]:
        """Tag, contents, and number of entries where the dynamic section has it, of each table."""
        if not (self.undefined or self.defined):
            return
        symbol = order + ("IBBHQQ" if self.bits == 64 else "IIIBBH")
        table, numbers = bytes(struct.calcsize(symbol)), [0]
        needs: dict[str, dict[str, int]] = {}
        for name, version, library in self.undefined:
            info, name_at = (0x20 if name.endswith("?") else 0x12), string(name.rstrip("?"))
            row = (name_at, info, 0, 0, 0, 0) if self.bits == 64 else (name_at, 0, 0, info, 0, 0)
            table += struct.pack(symbol, *row)
            number = 0
            if version is not None and library is not None:
                count = sum(map(len, needs.values()))
                own = needs.setdefault(library, {})
                number = own.setdefault(version, len(self.versions) + count + 2)
            numbers.append(number)
        for name in self.defined:
            name_at = string(name)
            row = (
                (name_at, 0x12, 0, 1, BASE, 0)
                if self.bits == 64
                else (name_at, BASE, 0, 0x12, 0, 1)
            )
            table += struct.pack(symbol, *row)
            numbers.append(len(self.versions) or 1)
        yield 6, Part(".dynsym", table, DYNSYM), 0
        hashes = [gnu_hash(name.encode()) & ~1 for name in self.defined]
        if hashes:
            hashes[-1] |= 1
        first = 1 + len(self.undefined)
        words = [1, first, 1, 6, *([0xFFFFFFFF] * (self.bits // 32)), first if hashes else 0]
        data = b"".join(struct.pack(order + "I", word) for word in (*words, *hashes))
        yield 0x6FFFFEF5, Part(".gnu.hash", data), 0
        if not (self.versions or needs):
            return
        data = b"".join(struct.pack(order + "H", number) for number in numbers)
        yield 0x6FFFFFF0, Part(".gnu.version", data), 0
        if needs:
            data = b""
            for place, (library, own) in enumerate(needs.items()):
                last = place == len(needs) - 1
                data += struct.pack(
                    order + "HHIII",
                    1,
                    len(own),
                    string(library),
                    16,
                    0 if last else 16 + 16 * len(own),
                )
                for step, (version, number) in enumerate(own.items()):
                    behind = 0 if step == len(own) - 1 else 16
                    data += struct.pack(order + "IHHII", 0, 0, number, string(version), behind)
            yield 0x6FFFFFFE, Part(".gnu.version_r", data), len(needs)
        if self.versions:
            data = b""
            for place, version in enumerate(self.versions):
                behind = 0 if place == len(self.versions) - 1 else 28
                head = (1, int(not place), place + 1, 1, 0, 20, behind)
                data += struct.pack(order + "HHHHIII", *head)
                data += struct.pack(order + "II", string(version), 0)
            yield 0x6FFFFFFC, Part(".gnu.version_d", data), len(self.versions)


def gnu_hash(name: bytes) -> int:
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def fat_entry(kind: int, arch: int, payload: bytes = bytes(32), flags: int = 0x11) -> bytes:
    head = struct.pack(
        "<HHIQIIHHIIIQQQ",
        kind, 0x101, 64, len(payload), 0, 0, 7, 1, arch, 0, 0, flags, 0, len(payload),
    )  # fmt: skip
    return head + payload


def fat_binary(*entries: bytes) -> bytes:
    payload = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(payload)) + payload


def bundle(images: Mapping[str, bytes]) -> bytes:
    """A plain clang offload bundle: identifier to image, images on 4096-byte boundaries."""
    table = len(images).to_bytes(8, "little")
    offset = 4096
    body = b""
    for identifier, image in images.items():
        table += struct.pack("<QQQ", offset, len(image), len(identifier)) + identifier.encode()
        body += image.ljust(-(-len(image) // 4096) * 4096, b"\0")
        offset = 4096 + len(body)
    return (b"__CLANG_OFFLOAD_BUNDLE__" + table).ljust(4096, b"\0") + body


def compressed_bundle(version: int, method: int, packed: bytes, uncompressed: int) -> bytes:
    size = len(packed) + {1: 20, 2: 24, 3: 32}[version]
    fields = {
        1: struct.pack("<I", uncompressed),
        2: struct.pack("<II", size, uncompressed),
        3: struct.pack("<QQ", size, uncompressed),
    }[version]
    return b"CCOB" + struct.pack("<HH", version, method) + fields + bytes(8) + packed
