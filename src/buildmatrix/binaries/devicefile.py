"""Files that are no ELF of the host and matter to an accelerator.

Cubins and code objects, fat binaries, PTX, bitcode, SPIR-V, packed kernels, compiled networks, the
caches of Triton, and static archives, whose members may hold any of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from buildmatrix.binaries.hostdata import HostData
from buildmatrix.binaries.model import DeviceFile
from buildmatrix.binaries.reader import read_elf
from buildmatrix.device_code import (
    bitcode,
    bundles,
    compiled,
    fatbin,
    kpack,
    offloadbinary,
    spirv,
)
from buildmatrix.device_code.entries import CodeEntry
from buildmatrix.device_code.finder import DeviceCodeFinder, Spent, read_containers
from buildmatrix.device_code.model import DeviceCode
from buildmatrix.device_code.suffixes import SUFFIXES
from buildmatrix.device_code.sums import Sums
from buildmatrix.elf import archive
from buildmatrix.elf import layout as abi
from buildmatrix.elf.headers import Malformed
from buildmatrix.elf.model import Mark
from buildmatrix.elf.regions import Region
from buildmatrix.elf.source import ByteSource

#: Bytes of the head that `kind_of` wants to see.
HEAD = 64

#: The kind of a file by its first bytes.
_MAGIC = (
    (bitcode.MAGIC, "bc"),
    (bitcode.WRAPPER_MAGIC, "bc"),
    (fatbin.MAGIC, "fatbin"),
    (bundles.MAGIC, "hipfb"),
    (bundles.COMPRESSED_MAGIC, "hipfb"),
    (offloadbinary.MAGIC, "offload"),
    (kpack.MAGIC, "kpack"),
    (spirv.MAGIC, "spv"),
    (spirv.MAGIC[::-1], "spv"),
    (archive.MAGIC, "a"),
    (archive.THIN_MAGIC, "a"),
)
#: ELF files by their machine.
_OBJECTS = {
    abi.EM_CUDA: "cubin",
    abi.EM_AMDGPU: "hsaco",
    abi.EM_INTELGT: "zebin",
    abi.EM_ASCEND: "aicore",
}

#: Format and kind of a piece of code where the file holds just one.
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

#: Text in which a target is looked for.
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

#: Machines of bitcode that is for an accelerator; the rest is code of the host.
_DEVICE_TRIPLES = re.compile(r"(nvptx|amdgcn|amdgpu|r600|spir|spirv|amdil|hsail)")

#: Members whose troubles are reported.
_MOST_UNREAD = 16


def kind_of(name: str, head: bytes) -> str | None:
    """The kind of a file from its name and its first `HEAD` bytes; None for any other file.

    Objects for the host are none.
    """
    if head.startswith(abi.MAGIC):
        if len(head) < 20 or head[5] not in (1, 2):
            return None
        return _OBJECTS.get(int.from_bytes(head[18:20], "little" if head[5] == 1 else "big"))
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    network = compiled.kind_of(name, head)
    if network is not None:
        return network
    suffix = name.rpartition(".")[2].lower()
    return suffix if suffix in SUFFIXES else None


def read_device_file(
    source: ByteSource, size: int, name: str, spent: Spent | None = None
) -> DeviceFile | None:
    """What the file `name` says; None when it is none that matters (see `kind_of`).

    Code whose architecture the bytes do not show has a note with the reason; trouble is in
    `DeviceFile.unread`. Time and memory are bounded; for a part of a file, `spent` is what the
    other parts cost.

    Raises:
        OSError: the source could not be read.
    """
    kind = kind_of(name, source.read(0, HEAD))
    if kind is None:
        return None
    if kind == "a":
        return _read_archive(source, size)
    if kind in ("fatbin", "hipfb", "offload"):
        unread: list[str] = []
        device_codes = read_containers(source, size, unread, spent)
        if device_codes is not None:
            return DeviceFile(kind, device_codes, unread=tuple(unread))
        entries: Iterable[CodeEntry] = (_unknown(kind, size, "there is no container in the file"),)
    elif kind in _OBJECTS.values():
        return _read_object(source, size, kind)
    elif kind in compiled.KINDS:
        return _read_compiled(source, size, kind, spent)
    elif kind == "kpack":
        entries = kpack.read(source, size)
    else:
        entries = _read_program(source, size, kind)
    return DeviceFile(kind, _summed(entries))


def _summed(entries: Iterable[CodeEntry]) -> tuple[DeviceCode, ...]:
    sums = Sums([])
    for entry in entries:
        sums.add(entry)
    return sums.device_code()


def _unknown(kind: str, size: int, why: str) -> CodeEntry:
    container, meaning = _MEANINGS[kind]
    return CodeEntry(container, meaning, None, 0, size, note=why)


def _read_object(source: ByteSource, size: int, kind: str) -> DeviceFile:
    try:
        elf = read_elf(source, size)
    except Malformed as problem:
        return DeviceFile(kind, _summed([_unknown(kind, size, problem.reason)]))
    if elf is None:
        return DeviceFile(kind, _summed([_unknown(kind, size, "the file is no ELF object")]))
    return DeviceFile(kind, elf.device_code, unread=elf.unread)


#: Networks with device objects in them as they are.
_WITH_OBJECTS = frozenset({"engine", "mxr"})
#: Why an architecture is not known.
_UNNAMED = {
    "engine": "the header of an engine does not say for which GPU it is",
    "timing": "a timing cache does not say for which GPU it is",
    "mxr": "the format does not say, and no code object lies bare in the file",
}


def _read_compiled(
    source: ByteSource, size: int, kind: str, spent: Spent | None
) -> DeviceFile | None:
    """A compiled network: what its header says, and the device objects that lie bare in it."""
    header = compiled.read(source, size, kind)
    if header is None:
        return None
    unread = [header.unread] if header.unread else []
    container, meaning = _MEANINGS[kind]
    objects: tuple[DeviceCode, ...] = ()
    if kind in _WITH_OBJECTS:
        spent = spent or Spent()
        finder = DeviceCodeFinder(source, unread, spent)
        region = Region(0, spent.search(size, unread), None, executable=False)
        HostData(source, finder).search([region])
        objects = tuple(code for code in finder.device_code() if code.arch is not None)
    unread += [code.note for code in objects if code.note]
    named = [
        CodeEntry(container, code.kind, code.arch, code.offset, code.size, language=code.language)
        for code in objects
    ]
    rest = max(0, size - sum(entry.size for entry in named))
    if named:
        # Weights and plans are useless without the code.
        named[0] = replace(named[0], size=named[0].size + rest)
    else:
        why = header.note or _UNNAMED.get(kind, "the header does not name the device")
        note = None if header.arch else why
        meaning = header.vendor or meaning
        named.append(CodeEntry(container, meaning, header.arch, 0, size, note=note))
    return DeviceFile(kind, _summed(named), version=header.version, unread=tuple(unread))


def _read_program(source: ByteSource, size: int, kind: str) -> list[CodeEntry]:
    """The one program that is the whole file; nothing for bitcode of the host."""
    container, meaning = _MEANINGS[kind]
    arch: str | None = None
    if kind == "spv":
        arch = spirv.model(source, 0, size)
        why = "the file is no SPIR-V module of a known byte order and version"
    elif kind == "bc":
        triple = bitcode.triple(source, 0, size)
        why = "the module names no target triple"
        if triple is not None:
            arch = triple.partition("-")[0]
            if not _DEVICE_TRIPLES.match(arch):
                return []
    elif kind in _TARGETS:
        arch = _target(kind, source.read(0, min(size, _TEXT_HEAD)))
        why = "the text names no target"
    else:
        why = f"the format of .{kind} files does not say"
    return [CodeEntry(container, meaning, arch, 0, size, note=None if arch else why)]


def _target(kind: str, head: bytes) -> str | None:
    match = _TARGETS[kind].search(head)
    if match is None:
        return None
    groups = {name: value.decode() for name, value in match.groupdict().items() if value}
    if "sm" in groups:
        return groups["sm"].replace("sm_", "compute_")
    return f"compute_{groups['cc']}" if "cc" in groups else groups["arch"]


def _read_archive(source: ByteSource, size: int) -> DeviceFile:
    """Device code and marks of all members, with their places in the archive."""
    troubles: list[str] = []
    sums = Sums(troubles)
    marks: dict[str, Mark] = {}
    unread: dict[str, None] = {}
    spent = Spent()
    count = 0
    for member in archive.members(source, size, troubles):
        count += 1
        try:
            inner = archive.MemberSource(source, member)
            # What an object of an archive loads shows in the library that it is linked into.
            elf = read_elf(inner, member.size, names=False, spent=spent)
        except Malformed as problem:
            if len(unread) < _MOST_UNREAD:
                unread.setdefault(f"a member: {problem.reason}")
            continue
        # A member may be bitcode or a fat binary by itself; archives in archives link nothing.
        plain = elf is None and kind_of("", inner.read(0, HEAD)) != "a"
        facts = read_device_file(inner, member.size, "", spent) if plain else elf
        if facts is None:
            continue
        for code in facts.device_code:
            sums.merge(replace(code, offset=code.offset + member.offset))
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
