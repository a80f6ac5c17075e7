"""Versions and symbols: what an object asks of which library, and what it offers."""

from __future__ import annotations

import struct
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import pytest
from elf_images import NOTE, STRTAB, Image, Part, gnu_hash
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

from buildmatrix.facts.binaries.reader import read_elf
from buildmatrix.facts.elf import symbols
from buildmatrix.facts.elf.model import (
    Binding,
    DlopenNote,
    Elf,
    SymbolNeed,
    Symbols,
    Undefined,
    VersionNeed,
)
from buildmatrix.facts.elf.symbols import DefinedSymbols, read_symbols
from buildmatrix.facts.trees.archive import BytesSource

SYMTAB = 2
GLOBAL_FUNCTION, LOCAL_FUNCTION, WEAK = 0x12, 0x02, 0x20


def system_libraries() -> list[Path]:
    folders = ("/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib64", "/lib")
    names = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libz.so.1", "libpthread.so.0")
    found = {Path(folder, name) for folder in folders for name in names}
    return sorted(
        {Path(sys.executable).resolve(), *(path.resolve() for path in found if path.exists())}
    )


each_library = pytest.mark.parametrize(
    "path", system_libraries(), ids=[path.name for path in system_libraries()]
)


def read(data: bytes) -> Symbols:
    found = read_symbols(BytesSource(data), len(data))
    assert found is not None
    return found


def headers(data: bytes) -> Elf:
    elf = read_elf(BytesSource(data), len(data), deep=False)
    assert elf is not None
    return elf


def without_section_headers(data: bytes) -> bytes:
    cut = bytearray(data)
    struct.pack_into("<Q", cut, 40, 0)
    struct.pack_into("<HHH", cut, 58, 0, 0, 0)
    return bytes(cut)


def with_symbols(rows: list[tuple[str, int, int]], *, parts: tuple[Part, ...] = ()) -> bytes:
    """A relocatable object with a table of (name, info, section)."""
    names, table = b"\0", bytes(24)
    for name, info, section in rows:
        table += struct.pack("<IBBHQQ", len(names), info, 0, section, 0, 0)
        names += name.encode() + b"\0"
    data = bytearray(
        Image(
            type=1,
            parts=[Part(".strtab", names, STRTAB, 0), Part(".symtab", table, SYMTAB, 0), *parts],
        ).build()
    )
    sections_at = struct.unpack_from("<Q", data, 40)[0]
    struct.pack_into("<I", data, sections_at + 2 * 64 + 40, 1)
    return bytes(data)


@each_library
def test_pyelftools_reads_the_same_versions(path: Path) -> None:
    with path.open("rb") as stream:
        needs, definitions = [], []
        for section in ELFFile(stream).iter_sections():
            if isinstance(section, GNUVerNeedSection):
                needs = [
                    VersionNeed(library.name, tuple(aux.name for aux in versions))
                    for library, versions in section.iter_versions()
                ]
            elif isinstance(section, GNUVerDefSection):
                definitions = [next(aux).name for _, aux in section.iter_versions()]
    elf = headers(path.read_bytes())
    assert elf.version_needs == tuple(needs)
    assert elf.version_definitions == tuple(definitions)


@each_library
def test_pyelftools_reads_the_same_dynamic_symbols(path: Path) -> None:
    undefined, defined = [], []
    with path.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        for symbol in table.iter_symbols():
            if symbol.name and symbol["st_shndx"] == "SHN_UNDEF":
                undefined.append((symbol.name, symbol["st_info"]["bind"] == "STB_WEAK"))
            elif symbol.name:
                defined.append(symbol.name)
    found = read(path.read_bytes())
    assert [(symbol.name, symbol.weak) for symbol in found.undefined] == undefined
    assert found.defined == tuple(dict.fromkeys(defined))
    assert found.unread == ()


@each_library
def test_the_symbols_are_the_same_without_section_headers(path: Path) -> None:
    data = path.read_bytes()
    whole, cut = read(data), read(without_section_headers(data))
    # Without them the hash table tells the number, and the GNU one lists what is defined last.
    assert cut.undefined == whole.undefined
    assert cut.defined == whole.defined
    assert headers(without_section_headers(data)).version_needs == headers(data).version_needs


def test_an_undefined_symbol_names_its_library_where_versions_do() -> None:
    found = read(Path(sys.executable).resolve().read_bytes())
    wanted = {symbol.name: symbol for symbol in found.undefined}
    libraries = {
        need.library for need in headers(Path(sys.executable).resolve().read_bytes()).version_needs
    }
    assert {symbol.library for symbol in wanted.values()} - {None} <= libraries
    assert any((symbol.version or "").startswith("GLIBC_") for symbol in wanted.values())


def test_a_relocatable_object_tells_what_it_asks_for_and_what_it_offers() -> None:
    found = read(
        with_symbols(
            [
                ("helper", LOCAL_FUNCTION, 1),
                ("offered", GLOBAL_FUNCTION, 1),
                ("cudaLaunchKernel", 0x10, 0),
                ("maybe", WEAK, 0),
            ]
        )
    )
    assert found == Symbols(
        undefined=(Undefined("cudaLaunchKernel"), Undefined("maybe", weak=True)),
        defined=("offered",),
    )


def test_more_names_than_are_kept_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "MOST_NAMES", 3)
    found = read(with_symbols([(f"f{number}", GLOBAL_FUNCTION, 1) for number in range(9)]))
    assert found.defined == ("f0", "f1", "f2")
    assert found.unread == ("more than 3 symbol names: only the first were read",)


def test_names_behind_what_is_read_at_once_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"name{number:04}" * 20, GLOBAL_FUNCTION, number % 2) for number in range(900)]
    whole = read(with_symbols(rows))
    monkeypatch.setattr(symbols, "MOST_TABLE_BYTES", 4096)
    monkeypatch.setattr(symbols, "_SHORT_NAME", 64)
    assert read(with_symbols(rows)) == whole
    assert len(whole.undefined) == len(whole.defined) == 450


def test_what_is_asked_for_is_kept_where_there_are_too_many_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(symbols, "MOST_NAME_BYTES", 4)
    rows = [("offered", GLOBAL_FUNCTION, 1), ("more", GLOBAL_FUNCTION, 1), ("asked", 0x10, 0)]
    found = read(with_symbols(rows))
    assert found.undefined == (Undefined("asked"),)
    assert found.defined == ("offered",)
    assert found.unread == ("1 symbol names were skipped: too long in total, or outside the file",)


def test_a_file_that_is_no_elf_has_no_symbols() -> None:
    assert read_symbols(BytesSource(b"#!/bin/sh\n"), 10) is None


def dlopen_note(text: bytes) -> Part:
    value = text + b"\0"
    padded = value.ljust(-(-len(value) // 4) * 4, b"\0")
    return Part(
        ".note.dlopen", struct.pack("<III", 4, len(value), 0x407C0C0A) + b"FDO\0" + padded, NOTE
    )


def test_libraries_that_a_note_names_are_read_once_each() -> None:
    one = b'[{"soname":["libz.so.1"],"feature":"gzip","priority":"required","description":"x"}]'
    two = b'[{"soname":["libb.so.2","libb.so.1"]},{"soname":["libc.so.1"],"priority":"odd"}]'
    elf = headers(Image(parts=[dlopen_note(one), dlopen_note(two), dlopen_note(one)]).build())
    assert elf.dlopen_notes == (
        DlopenNote(("libz.so.1",), "gzip", "required"),
        DlopenNote(("libb.so.2", "libb.so.1")),
        DlopenNote(("libc.so.1",)),
    )
    assert elf.unread == ()


@pytest.mark.parametrize(
    "text", [b"{", b"{}", b"[1]", b'[{"soname":"libz.so.1"}]', b"[" * 40_000, b'[{"soname":[1]}]']
)
def test_a_note_that_is_no_list_of_libraries_is_told(text: bytes) -> None:
    elf = headers(Image(parts=[dlopen_note(text)]).build())
    assert elf.dlopen_notes == ()
    assert elf.unread == ("a dlopen note is not valid JSON",)


def test_the_abi_note_names_the_oldest_kernel() -> None:
    note = struct.pack("<III", 4, 16, 1) + b"GNU\0" + struct.pack("<4I", 0, 4, 18, 1)
    assert (
        headers(Image(parts=[Part(".note.ABI-tag", note, NOTE)]).build()).abi_tag == "linux 4.18.1"
    )


def test_a_version_table_that_points_nowhere_is_told() -> None:
    elf = headers(Image(needed=["libc.so.6"], numbers={0x6FFFFFFE: 1 << 40, 0x6FFFFFFF: 3}).build())
    assert elf.version_needs == ()
    assert elf.unread == ("part of the symbol version table cannot be read",)


def test_a_version_table_that_runs_in_circles_ends() -> None:
    # One entry that says there are four billion, each with as many versions, at a distance of 16.
    row = struct.pack("<HHIII", 1, 0xFFFF, 1, 16, 16) + struct.pack("<IHHII", 0, 0, 2, 1, 1)
    image = Image(
        needed=["libc.so.6"],
        numbers={0x6FFFFFFE: 0, 0x6FFFFFFF: (1 << 32) - 1},
        parts=[Part(".v", row * 64)],
    )
    data = bytearray(image.build())
    at = data.index(row)
    where = data.index(struct.pack("<QQ", 0x6FFFFFFE, 0))
    struct.pack_into("<Q", data, where + 8, 0x10000 + at)
    elf = headers(bytes(data))
    assert elf.unread == ("part of the symbol version table cannot be read",)
    assert sum(len(need.versions) for need in elf.version_needs) <= 1 << 13


def exported(binding: Binding | None) -> list[int]:
    assert binding is not None
    return sorted(value & ~1 for (value,) in struct.iter_unpack("<I", b64decode(binding.exports)))


@each_library
def test_the_loader_finds_what_pyelftools_lists(path: Path) -> None:
    data = path.read_bytes()
    needed, defined, undefined = set(), set(), set()
    with path.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        for symbol in table.iter_symbols():
            value = gnu_hash(symbol.name.encode()) & ~1
            if symbol["st_info"]["bind"] == "STB_LOCAL" or not symbol.name:
                continue
            if symbol["st_shndx"] != "SHN_UNDEF":
                defined.add(value)
            else:
                undefined.add(value)
                if symbol["st_info"]["bind"] != "STB_WEAK":
                    needed.add(symbol.name)
    for binding in (headers(data).binding, headers(without_section_headers(data)).binding):
        assert binding is not None
        assert defined <= set(exported(binding))
        # A program may have functions of others in its table, whose addresses it takes.
        assert set(exported(binding)) - defined <= undefined
        names = {name for need in binding.needs for name in need.names}
        assert names <= needed
        versions = {need.version or "" for need in binding.needs}
        assert not any(version.startswith(("GLIBC_2", "GLIBCXX_")) for version in versions)


@pytest.mark.parametrize(("bits", "little_endian"), [(64, True), (64, False), (32, True)])
def test_needs_and_exports_are_read_in_every_layout(bits: int, little_endian: bool) -> None:
    image = Image(
        bits=bits,
        little_endian=little_endian,
        machine={64: 62, 32: 3}[bits],
        needed=["libother.so.1", "libc.so.6"],
        undefined=[
            ("plain", None, None),
            ("versioned", "V_2", "libother.so.1"),
            ("malloc", "GLIBC_2.17", "libc.so.6"),
            ("optional?", "V_2", "libother.so.1"),
            ("PyList_New", None, None),
            ("_Py_NoneStruct", None, None),
        ],
        defined=["one", "_ZN3two3endEv"],
        versions=["libown.so.1", "OWN_1"],
    )
    elf = headers(image.build())
    assert elf.unread == ()
    assert elf.version_definitions == ("libown.so.1", "OWN_1")
    assert elf.binding is not None
    assert elf.binding.needs == (
        SymbolNeed(("plain",)),
        SymbolNeed(("versioned",), "V_2", "libother.so.1"),
    )
    names = DefinedSymbols(["one", "_ZN3two3endEv", "three", ""])
    found = names.among(elf.binding.exports)
    assert {name for name, value in names.hashes.items() if value in found} == {
        "one",
        "_ZN3two3endEv",
    }


@pytest.mark.parametrize("style", ["gnu", "sysv"])
def test_either_hash_table_lists_the_same_symbols(tmp_path: Path, style: str) -> None:
    source, library = tmp_path / "a.c", tmp_path / "a.so"
    source.write_text("extern int far(void); int near(void) { return far(); } int data = 1;")
    flags = ["-shared", "-fPIC", "-nostdlib", f"-Wl,--hash-style={style}"]
    subprocess.run(["gcc", *flags, source, "-o", library], check=True)
    binding = headers(library.read_bytes()).binding
    assert binding is not None
    assert binding.needs == (SymbolNeed(("far",)),)
    values = exported(binding)
    assert values == sorted(gnu_hash(name) & ~1 for name in (b"near", b"data"))


def test_tables_that_lie_about_their_size_are_not_known() -> None:
    whole = Image(undefined=[("a", None, None)], defined=["b", "c"]).build()
    table = struct.pack("<IIII", 1, 2, 1, 6)
    at = whole.index(table)
    for field, value in ((0, 1 << 31), (0, 0), (4, 1 << 30), (8, 1 << 30), (24, 1 << 20)):
        data = bytearray(whole)
        struct.pack_into("<I", data, at + field, value)
        assert headers(bytes(data)).binding is None, field
    chains = bytearray(whole)
    # No hash ends the chain, and the file does not end behind it either.
    struct.pack_into("<II", chains, at + 28, 2, 2)
    binding = headers(bytes(chains)).binding
    assert binding is None or len(exported(binding)) * 24 < len(whole)
