"""Accelerator files and Python modules other than host ELF files.

Cubins and code objects, fat binaries, PTX, bitcode, SPIR-V, packed kernels, compiled networks,
Triton caches, and static archives, whose members may hold any of these; and Python modules of other
systems, which an import may ask for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from struct import unpack_from

from buildmatrix.facts.binaries import codeobject, compiled, fat_binaries, intermediate
from buildmatrix.facts.binaries.finder import DeviceCodeFinder, SearchCost, read_containers
from buildmatrix.facts.binaries.groups import Sums
from buildmatrix.facts.binaries.hostdata import HostData
from buildmatrix.facts.binaries.reader import read_elf
from buildmatrix.facts.elf import layout as abi
from buildmatrix.facts.elf.headers import Malformed
from buildmatrix.facts.elf.layout import ARCHIVE_MAGIC, THIN_ARCHIVE_MAGIC, archive_members
from buildmatrix.facts.elf.model import SUFFIXES, DeviceCode, DeviceFile, Mark
from buildmatrix.facts.elf.search import Region
from buildmatrix.facts.trees.base import ByteSource

# Windows and macOS.
#
# Microsoft, PE Format: headers, section table, import and delay-load import directories.


#: First bytes -> kind. A Mach-O file for several machines begins as a Java class does.
PORTABLE_MAGICS = ((b"MZ", "pe"), (b"\xcf\xfa\xed\xfe", "macho"), (b"\xca\xfe\xba\xbe", "macho"))
#: What libraries and Python modules in code of the machine are called, on any system.
PORTABLE_SUFFIXES = frozenset({"dll", "dylib", "pyd", "so"})
_PORTABLE_HEADERS = 4 << 10
_MOST_SECTIONS = 100
_MOST_LINKS = 500
_LONGEST_NAME = 260
#: Directories of imports: their number, bytes of an entry, and where it has the name.
_DIRECTORIES = ((1, 20, 12), (13, 32, 4))


def detect_portable_kind(name: str, head: bytes) -> str | None:
    """Return `pe` or `macho` for a library or module of Windows or macOS, else None."""
    if name.rpartition(".")[2].lower() not in PORTABLE_SUFFIXES:
        return None
    return next((kind for magic, kind in PORTABLE_MAGICS if head.startswith(magic)), None)


def read_portable_links(source: ByteSource) -> tuple[str, ...]:
    """Return the libraries that a PE file links; of a damaged file, those before the damage."""
    head = source.read(0, _PORTABLE_HEADERS)
    if len(head) < 64:
        return ()
    (start,) = unpack_from("<I", head, 60)
    if start > len(head) - 24 or head[start : start + 4] != b"PE\0\0":
        return ()
    sections, optional = unpack_from("<H", head, start + 6)[0], start + 24
    table = optional + unpack_from("<H", head, start + 20)[0]
    at = optional + (112 if head[optional : optional + 2] == b"\x0b\x02" else 96)
    places = [
        (address, size, offset)
        for number in range(min(sections, _MOST_SECTIONS))
        if len(part := head[table + 40 * number : table + 40 * (number + 1)]) == 40
        for _, address, size, offset in [unpack_from("<4I", part, 8)]
    ]
    names: dict[str, None] = {}
    for number, length, field in _DIRECTORIES:
        entry = at + 8 * number
        if entry + 8 <= min(table, len(head)):
            (address,) = unpack_from("<I", head, entry)
            names |= dict.fromkeys(_read_names(source, places, address, length, field))
    return tuple(names)


def _read_names(
    source: ByteSource, places: list[tuple[int, int, int]], address: int, length: int, field: int
) -> Iterator[str]:
    begin = _find_offset(places, address)
    entries = source.read(begin, length * _MOST_LINKS) if begin else b""
    for at in range(0, len(entries) - length + 1, length):
        offset = _find_offset(places, unpack_from("<I", entries, at + field)[0])
        if not offset:
            return
        name = source.read(offset, _LONGEST_NAME).partition(b"\0")[0]
        if name.isascii() and name.decode().isprintable():
            yield name.decode()


def _find_offset(places: list[tuple[int, int, int]], address: int) -> int:
    """Return the place of an address in the file; 0 for none."""
    for start, size, offset in places:
        if address and start <= address < start + size:
            return address - start + offset
    return 0


# Accelerator files


#: Bytes of the head that `detect_kind` needs.
HEAD = 64

#: File kinds by their first bytes.
_MAGIC = (
    (intermediate.BITCODE_MAGIC, "bc"),
    (intermediate.BITCODE_WRAPPER_MAGIC, "bc"),
    (fat_binaries.FATBIN_MAGIC, "fatbin"),
    (fat_binaries.BUNDLE_MAGIC, "hipfb"),
    (fat_binaries.COMPRESSED_BUNDLE_MAGIC, "hipfb"),
    (fat_binaries.OFFLOAD_MAGIC, "offload"),
    (codeobject.KPACK_MAGIC, "kpack"),
    (intermediate.SPIRV_MAGIC, "spv"),
    (intermediate.SPIRV_MAGIC[::-1], "spv"),
    (ARCHIVE_MAGIC, "a"),
    (THIN_ARCHIVE_MAGIC, "a"),
)
#: Kinds of ELF files by machine.
_OBJECTS = {
    abi.EM_CUDA: "cubin",
    abi.EM_AMDGPU: "hsaco",
    abi.EM_INTELGT: "zebin",
    abi.EM_ASCEND: "aicore",
}

#: Format and kind of the code in files that hold a single piece.
_MEANINGS = {
    "cubin": ("elf", "sass"),
    "hsaco": ("elf", "amdgcn"),
    "zebin": ("elf", "zebin"),
    "aicore": ("elf", "aicore"),
    "fatbin": ("nv-fatbin", "unknown"),
    "hipfb": ("hip-bundle", "unknown"),
    "offload": ("offload-binary", "unknown"),
    "ltoir": ("ltoir", "lto-ir"),
    "ptx": ("ptx", "ptx"),
    "spv": ("spirv", "spirv"),
    "bc": ("bitcode", "bitcode"),
    "amdgcn": ("amdgcn", "amdgcn"),
    "ttir": ("triton", "ir"),
    "ttgir": ("triton", "ir"),
    "llir": ("triton", "ir"),
    "engine": ("engine", "unknown"),
    "timing": ("timing-cache", "unknown"),
    "mxr": ("mxr", "unknown"),
    "blob": ("openvino", "unknown"),
    "neff": ("neff", "unknown"),
    "om": ("om", "unknown"),
    "vkcache": ("vulkan-cache", "unknown"),
}

#: Bytes of text that are searched for a target.
_TEXT_HEAD = 16 << 10
_TARGETS = {
    # `.target sm_90a, texmode_independent`, PTX ISA; still to be compiled for a machine.
    "ptx": re.compile(rb"^[ \t]*\.target[ \t]+(?P<sm>sm_[0-9]{1,4}[af]?)\b", re.MULTILINE),
    "amdgcn": re.compile(
        rb"\.amdgcn_target \"amd(?:gcn|gpu)[^\"]{0,64}-(?P<arch>gfx[0-9a-z:+-]{1,40})\""
    ),
    # The attribute of the module that names the target: `"cuda:90"`, `"hip:gfx942"`.
    "ttgir": re.compile(rb"\"(?:cuda:(?P<cc>[0-9]{1,4})|hip:(?P<arch>gfx[0-9a-z]{1,20}))\""),
    "llir": re.compile(rb"^target triple = \"(?P<arch>[a-z0-9_.]{1,40})-", re.MULTILINE),
}

#: Machines of bitcode for accelerators; other bitcode is host code.
_DEVICE_TRIPLES = re.compile(r"(nvptx|amdgcn|amdgpu|r600|spir|spirv|amdil|hsail)")

#: Members whose problems are reported.
_MOST_UNREAD = 16


def detect_kind(name: str, head: bytes) -> str | None:
    """Return a file's kind from its name and its first `HEAD` bytes; None for other files.

    Host objects count as other files.
    """
    if head.startswith(abi.MAGIC):
        if len(head) < 20 or head[5] not in (1, 2):
            return None
        return _OBJECTS.get(int.from_bytes(head[18:20], "little" if head[5] == 1 else "big"))
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    network = compiled.detect_kind(name, head) or detect_portable_kind(name, head)
    if network is not None:
        return network
    suffix = name.rpartition(".")[2].lower()
    return suffix if suffix in SUFFIXES else None


def read_device_file(
    source: ByteSource, size: int, name: str, spent: SearchCost | None = None
) -> DeviceFile | None:
    """Read the facts of the file `name`; None if it is not relevant (see `detect_kind`).

    Code whose architecture the bytes do not show has a note with the reason; problems are in
    `DeviceFile.unread`. Time and memory are bounded. For a part of a file, `spent` is the cost of
    the other parts.

    Raises:
        OSError: the source could not be read.
    """
    kind = detect_kind(name, source.read(0, HEAD))
    if kind is None:
        return None
    if kind == "a":
        return _read_archive(source, size)
    if kind in ("pe", "macho"):
        return DeviceFile(kind, links=read_portable_links(source) if kind == "pe" else ())
    if kind in ("fatbin", "hipfb", "offload"):
        unread: list[str] = []
        device_codes = read_containers(source, size, unread, spent)
        if device_codes is not None:
            return DeviceFile(kind, device_codes, unread=tuple(unread))
        entries: Iterable[DeviceCode] = (
            _make_unknown_entry(kind, size, "there is no container in the file"),
        )
    elif kind in _OBJECTS.values():
        return _read_object(source, size, kind)
    elif kind in compiled.KINDS:
        return _read_compiled(source, size, kind, spent)
    elif kind == "kpack":
        entries = codeobject.read_kpack(source, size)
    else:
        entries = _read_program(source, size, kind)
    return DeviceFile(kind, _sum_entries(entries))


def _sum_entries(entries: Iterable[DeviceCode]) -> tuple[DeviceCode, ...]:
    sums = Sums([])
    for entry in entries:
        sums.add(entry)
    return sums.device_code()


def _make_unknown_entry(kind: str, size: int, why: str) -> DeviceCode:
    container, meaning = _MEANINGS[kind]
    return DeviceCode(container, meaning, None, 1, size, 0, note=why)


def _read_object(source: ByteSource, size: int, kind: str) -> DeviceFile:
    why = "the file is not an ELF object"
    try:
        elf = read_elf(source, size)
    except Malformed as problem:
        elf, why = None, problem.reason
    if elf is None:
        return DeviceFile(kind, (_make_unknown_entry(kind, size, why),))
    return DeviceFile(kind, elf.device_code, unread=elf.unread)


#: Networks that contain plain device objects.
_WITH_OBJECTS = frozenset({"engine", "mxr"})
#: Reasons why an architecture is unknown.
_UNKNOWN_ARCH_REASONS = {
    "engine": "the header of an engine does not say for which GPU it is",
    "timing": "a timing cache does not say for which GPU it is",
    "mxr": "the format does not say, and no code object lies bare in the file",
}


def _read_compiled(
    source: ByteSource, size: int, kind: str, spent: SearchCost | None
) -> DeviceFile | None:
    """Read the header of a compiled network and the plain device objects in it."""
    header = compiled.read(source, size, kind)
    if header is None:
        return None
    unread = [header.unread] if header.unread else []
    container, meaning = _MEANINGS[kind]
    objects: tuple[DeviceCode, ...] = ()
    if kind in _WITH_OBJECTS:
        spent = spent or SearchCost()
        finder = DeviceCodeFinder(source, unread, spent)
        region = Region(0, spent.search(size, unread), None, executable=False)
        HostData(source, finder).search([region])
        objects = tuple(code for code in finder.device_code() if code.arch is not None)
    unread += [code.note for code in objects if code.note]
    named = [
        DeviceCode(
            container, code.kind, code.arch, 1, code.size, code.offset, language=code.language
        )
        for code in objects
    ]
    rest = max(0, size - sum(entry.size for entry in named))
    if named:
        # Weights and plans are useless without the code.
        named[0] = replace(named[0], size=named[0].size + rest)
    else:
        why = header.note or _UNKNOWN_ARCH_REASONS.get(kind, "the header does not name the device")
        note = None if header.arch else why
        meaning = header.vendor or meaning
        named.append(DeviceCode(container, meaning, header.arch, 1, size, 0, note=note))
    return DeviceFile(kind, _sum_entries(named), version=header.version, unread=tuple(unread))


def _read_program(source: ByteSource, size: int, kind: str) -> list[DeviceCode]:
    """Return the single program that is the whole file; nothing for host bitcode."""
    container, meaning = _MEANINGS[kind]
    arch: str | None = None
    if kind == "spv":
        arch = intermediate.read_addressing_model(source, 0, size)
        why = "the file is not a SPIR-V module of a known byte order and version"
    elif kind == "bc":
        triple = intermediate.read_triple(source, 0, size)
        why = "the module names no target triple"
        if triple is not None:
            arch = triple.partition("-")[0]
            if not _DEVICE_TRIPLES.match(arch):
                return []
    elif kind in _TARGETS:
        arch = _find_target(kind, source.read(0, min(size, _TEXT_HEAD)))
        why = "the text names no target"
    else:
        why = f"the format of .{kind} files does not say"
    return [DeviceCode(container, meaning, arch, 1, size, 0, note=None if arch else why)]


def _find_target(kind: str, head: bytes) -> str | None:
    match = _TARGETS[kind].search(head)
    if match is None:
        return None
    groups = {name: value.decode() for name, value in match.groupdict().items() if value}
    if "sm" in groups:
        return groups["sm"].replace("sm_", "compute_")
    return f"compute_{groups['cc']}" if "cc" in groups else groups["arch"]


def _read_archive(source: ByteSource, size: int) -> DeviceFile:
    """Read device code and marks of all members, with their offsets in the archive."""
    troubles: list[str] = []
    sums = Sums(troubles)
    marks: dict[str, Mark] = {}
    unread: dict[str, None] = {}
    spent = SearchCost()
    count = 0
    for member in archive_members(source, size, troubles):
        count += 1
        try:
            # Names that an object loads show in the library that it is linked into.
            elf = read_elf(member, member.size, names=False, spent=spent)
        except Malformed as problem:
            if len(unread) < _MOST_UNREAD:
                unread.setdefault(f"a member: {problem.reason}")
            continue
        # A member may itself be bitcode or a fat binary; nested archives link nothing.
        plain = elf is None and detect_kind("", member.read(0, HEAD)) != "a"
        facts = read_device_file(member, member.size, "", spent) if plain else elf
        if facts is None:
            continue
        for code in facts.device_code:
            sums.add(replace(code, offset=code.offset + member.offset))
        for mark in facts.marks:
            marks.setdefault(mark.name, Mark(mark.name, mark.offset + member.offset))
        for why in facts.unread if len(unread) < _MOST_UNREAD else ():
            unread.setdefault(f"a member: {why}")
    return DeviceFile(
        kind="a",
        device_code=sums.device_code(),
        marks=tuple(marks.values()),
        members=count,
        unread=(*troubles, *unread),
    )
