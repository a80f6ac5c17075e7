"""Reader for ELF files; `read_elf` is its entry point.

It reads only the parts that it needs: a few kilobytes for the headers of a library of any size. A
deep read adds one pass over host data and code; of device code, only container headers are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from buildmatrix.facts.binaries import codeobject
from buildmatrix.facts.binaries.finder import DeviceCodeFinder, SearchCost
from buildmatrix.facts.binaries.hostdata import HostData
from buildmatrix.facts.elf import layout as abi
from buildmatrix.facts.elf.headers import (
    Dynamic,
    Headers,
    Malformed,
    read_dynamic,
    read_headers,
    text,
)
from buildmatrix.facts.elf.layout import AheadSource, CachedSource
from buildmatrix.facts.elf.model import Binding, Elf, Section
from buildmatrix.facts.elf.notes import Notes, Versions, read_notes, read_versions
from buildmatrix.facts.elf.search import MOST_NAMES, Region, host_regions
from buildmatrix.facts.elf.symbols import read_binding
from buildmatrix.facts.trees.base import ByteSource

__all__ = ["Malformed", "read_elf"]

#: Longest path of a file system.
_LONGEST_INTERPRETER = 4096
#: Types of files for the host's loader: ET_EXEC and ET_DYN.
_LOADED = (2, 3)


def read_elf(
    source: ByteSource,
    size: int,
    *,
    deep: bool = True,
    names: bool = True,
    spent: SearchCost | None = None,
) -> Elf | None:
    """Read the ELF file of `size` bytes in `source`; None if it is not an ELF file.

    Without `deep`, reads headers only: no device code, literals or marks. Without `names`, no
    literals. Unreadable parts are listed in `Elf.unread`; time and memory are bounded for any
    input. `spent` is the cost of other parts of the same file.

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
    if cut := _describe_truncation(headers, size):
        headers.unread.append(cut)
    is_loaded = headers.machine not in codeobject.CODE_OBJECT_KINDS and headers.type in _LOADED
    binding = read_binding(cached, headers, dynamic, versions) if is_loaded else None
    interpreter = read_interpreter(cached, headers)
    elf = make_table_facts(headers, dynamic, versions, notes, interpreter, binding)
    if deep:
        elf = _search(elf, source, size, headers, dynamic, spent or SearchCost(), names=names)
    return replace(elf, unread=tuple(dict.fromkeys(headers.unread)))


def make_table_facts(
    headers: Headers,
    dynamic: Dynamic,
    versions: Versions,
    notes: Notes,
    interpreter: str | None,
    binding: Binding | None,
) -> Elf:
    """Return the facts from the tables of a file, without those from a search of its bytes."""
    return Elf(
        bits=headers.layout.bits,
        little_endian=headers.layout.little_endian,
        machine=abi.MACHINES.get(headers.machine, str(headers.machine)),
        type=abi.TYPES.get(headers.type, str(headers.type)),
        soname=dynamic.soname,
        needed=dynamic.needed,
        rpath=dynamic.rpath,
        runpath=dynamic.runpath,
        interpreter=interpreter,
        flags_1=dynamic.flags_1,
        build_id=notes.build_id,
        os_abi=abi.OS_ABIS.get(headers.os_abi, str(headers.os_abi)),
        abi_tag=notes.abi_tag,
        isa_needed=notes.levels.needed,
        isa_used=notes.levels.used,
        version_needs=versions.needs,
        version_definitions=versions.definitions,
        binding=binding,
        dlopen_notes=notes.dlopen,
        sections=list_named_sections(headers),
    )


def list_named_sections(headers: Headers) -> tuple[Section, ...]:
    """Return the sections with a name, in table order."""
    return tuple(
        Section(s.name, s.offset, s.size, nobits=s.type == abi.SHT_NOBITS)
        for s in headers.sections
        if s.name
    )


def read_interpreter(source: CachedSource, headers: Headers) -> str | None:
    """Return the program that loads the file (PT_INTERP)."""
    for segment in headers.segments:
        if segment.type == abi.PT_INTERP:
            raw = source.read(segment.offset, min(segment.size, _LONGEST_INTERPRETER))
            return text(raw.partition(b"\0")[0]) or None
    return None


def _describe_truncation(headers: Headers, size: int) -> str | None:
    """Return why the file must be truncated, by its tables; None if it may be whole.

    Files with split debug information keep the program headers of their object, and sections
    without bytes, so segments count only if there are no sections.
    """
    promised = [s.offset + s.size for s in headers.sections if s.type == abi.SHT_PROGBITS]
    if not headers.sections:
        promised = [s.offset + s.size for s in headers.segments if s.type == abi.PT_LOAD]
    end = max(promised, default=0)
    return f"the file ends at {size}, and its contents go on to {end}" if end > size else None


def _search(
    elf: Elf,
    source: ByteSource,
    size: int,
    headers: Headers,
    dynamic: Dynamic,
    spent: SearchCost,
    *,
    names: bool,
) -> Elf:
    """Search host data and code in one pass, and walk the containers of device code."""
    device = DeviceCodeFinder(AheadSource(source), headers.unread, spent)
    device.read_sections(headers, size)
    if headers.machine in codeobject.CODE_OBJECT_KINDS:
        # Nothing in there is for the host's loader.
        return replace(elf, device_code=device.device_code())
    host = HostData(source, device)
    # Code contains nothing to find but names.
    regions = (
        region for region in host_regions(headers, dynamic, size) if names or not region.executable
    )
    host.search(_limit_regions(regions, spent, headers.unread))
    if names and host.literals.incomplete:
        headers.unread.append(f"more than {MOST_NAMES} names of libraries: only the first are kept")
    elf = replace(elf, device_code=device.device_code(), marks=host.marks.marks())
    if not names:
        # Code that only a linker uses is judged in the file that it was linked into.
        return elf
    literals = host.literals.literals()
    return replace(
        elf,
        code_groups=device.code_groups(),
        literals=tuple(name for name in literals if not device.covers(name.offset)),
    )


def _limit_regions(
    regions: Iterable[Region], spent: SearchCost, unread: list[str]
) -> Iterator[Region]:
    """Yield the regions, up to the search limit."""
    for region in regions:
        size = spent.search(region.size, unread)
        if size < region.size:
            yield replace(region, size=size)
            return
        yield region
