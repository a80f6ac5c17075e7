"""Reads one ELF file: `read_elf` is what the rest of buildmatrix calls.

Only the parts that answer a question are read, a few kilobytes for the headers of a library of any
size. The deep part adds one pass over the data and code of the host; device code is never read,
only the headers of its containers are.
"""

from __future__ import annotations

from buildmatrix.elf import codeobject
from buildmatrix.elf import layout as abi
from buildmatrix.elf.devicecode import CandidateFinder, DeviceCodeFinder
from buildmatrix.elf.dynamic import Dynamic, read_dynamic
from buildmatrix.elf.headers import Headers, Malformed, read_headers, text
from buildmatrix.elf.literals import MOST_NAMES, LiteralFinder
from buildmatrix.elf.marks import MarkFinder
from buildmatrix.elf.model import DeviceCode, Elf, Literal, Mark, Section
from buildmatrix.elf.notes import read_notes
from buildmatrix.elf.regions import host_regions, windows
from buildmatrix.elf.source import ByteSource, CachedSource
from buildmatrix.elf.versions import read_versions

__all__ = ["Malformed", "read_elf"]

#: A path of the file system.
_LONGEST_INTERPRETER = 4096


def read_elf(source: ByteSource, size: int, *, deep: bool = True) -> Elf | None:
    """What the ELF file in `source`, `size` bytes long, says; None when it is no ELF.

    Without `deep`, headers only: no device code, no literals, no marks. What could not be read is
    told in `Elf.unread`; time and memory are bounded whatever the bytes say.

    Raises:
        Malformed: the header itself cannot be used.
        OSError: the source could not be read.
    """
    cached = CachedSource(source, size)
    headers = read_headers(cached)
    if headers is None:
        return None
    dynamic = read_dynamic(cached, headers)
    versions = read_versions(cached, headers, dynamic)
    notes = read_notes(cached, headers)
    device_code: tuple[DeviceCode, ...] = ()
    literals: tuple[Literal, ...] = ()
    marks: tuple[Mark, ...] = ()
    if deep:
        device_code, literals, marks = _search(source, size, headers, dynamic)
    return Elf(
        bits=headers.layout.bits,
        little_endian=headers.layout.little_endian,
        machine=abi.MACHINES.get(headers.machine, str(headers.machine)),
        type=abi.TYPES.get(headers.type, str(headers.type)),
        soname=dynamic.soname,
        needed=dynamic.needed,
        rpath=dynamic.rpath,
        runpath=dynamic.runpath,
        interpreter=_interpreter(cached, headers),
        flags_1=dynamic.flags_1,
        build_id=notes.build_id,
        os_abi=abi.OS_ABIS.get(headers.os_abi, str(headers.os_abi)),
        abi_tag=notes.abi_tag,
        version_needs=versions.needs,
        version_definitions=versions.definitions,
        dlopen_notes=notes.dlopen,
        sections=tuple(
            Section(s.name, s.offset, s.size, nobits=s.type == abi.SHT_NOBITS)
            for s in headers.sections
            if s.name
        ),
        device_code=device_code,
        literals=literals,
        marks=marks,
        unread=tuple(headers.unread),
    )


def _interpreter(source: CachedSource, headers: Headers) -> str | None:
    for segment in headers.segments:
        if segment.type == abi.PT_INTERP:
            raw = source.read(segment.offset, min(segment.size, _LONGEST_INTERPRETER))
            return text(raw.partition(b"\0")[0]) or None
    return None


def _search(
    source: ByteSource, size: int, headers: Headers, dynamic: Dynamic
) -> tuple[tuple[DeviceCode, ...], tuple[Literal, ...], tuple[Mark, ...]]:
    """One pass over the host's data and code, and a walk over the containers of device code."""
    device = DeviceCodeFinder(source, headers.unread)
    device.read_sections(headers, size)
    if headers.machine in codeobject.KINDS:
        # Nothing in there is for the host's loader.
        return device.found(), (), ()
    literals, marks, candidates = LiteralFinder(), MarkFinder(), CandidateFinder()
    for region in host_regions(headers, dynamic, size):
        for window in windows(source, region):
            literals.search(window, region)
            if not region.executable:
                marks.search(window)
                candidates.search(window, region)
    device.read_candidates(candidates)
    if literals.incomplete:
        headers.unread.append(f"more than {MOST_NAMES} names of libraries: only the first are kept")
    return (
        device.found(),
        tuple(name for name in literals.literals() if not device.holds(name.offset)),
        marks.marks(),
    )
