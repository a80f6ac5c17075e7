"""Reads one ELF file: `read_elf` is what the rest of buildmatrix calls.

Only the parts that answer a question are read, a few kilobytes for the headers of a library of any
size. The deep part adds one pass over the data and code of the host; device code is never read,
only the headers of its containers are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from buildmatrix.binaries.hostdata import HostData
from buildmatrix.binaries.model import Elf
from buildmatrix.device_code import codeobject
from buildmatrix.device_code.finder import DeviceCodeFinder, Spent
from buildmatrix.device_code.model import CodeGroup, DeviceCode
from buildmatrix.elf import layout as abi
from buildmatrix.elf.dynamic import Dynamic, read_dynamic
from buildmatrix.elf.headers import Headers, Malformed, read_headers, text
from buildmatrix.elf.literals import MOST_NAMES
from buildmatrix.elf.model import Binding, Literal, Mark, Section
from buildmatrix.elf.notes import Notes, read_notes
from buildmatrix.elf.regions import Region, host_regions
from buildmatrix.elf.source import AheadSource, ByteSource, CachedSource
from buildmatrix.elf.symbols import read_binding
from buildmatrix.elf.versions import Versions, read_versions

__all__ = ["Malformed", "read_elf"]

#: A path of the file system.
_LONGEST_INTERPRETER = 4096
#: Types of what the host's loader loads: ET_EXEC and ET_DYN.
_LOADED = (2, 3)


def read_elf(
    source: ByteSource,
    size: int,
    *,
    deep: bool = True,
    names: bool = True,
    spent: Spent | None = None,
) -> Elf | None:
    """What the ELF file in `source`, `size` bytes long, says; None when it is no ELF.

    Without `deep`, headers only: no device code, no literals, no marks; without `names`, no
    literals. What could not be read is in `Elf.unread`; time and memory are bounded whatever
    the bytes say. `spent` is what other parts of the same file cost.

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
    if cut := _cut_short(headers, size):
        headers.unread.append(cut)
    searched = _Searched()
    if deep:
        spent = spent or Spent()
        searched = _search(source, size, headers, dynamic, spent, names=names)
    is_loaded = headers.machine not in codeobject.KINDS and headers.type in _LOADED
    binding = read_binding(cached, headers, dynamic, versions) if is_loaded else None
    interpreter = read_interpreter(cached, headers)
    elf = table_facts(headers, dynamic, versions, notes, interpreter, binding)
    return replace(
        elf,
        device_code=searched.device_code,
        code_groups=searched.code_groups,
        literals=searched.literals,
        marks=searched.marks,
        unread=tuple(dict.fromkeys(headers.unread)),
    )


def table_facts(
    headers: Headers,
    dynamic: Dynamic,
    versions: Versions,
    notes: Notes,
    interpreter: str | None,
    binding: Binding | None,
) -> Elf:
    """What the tables of a file say, without what a search of its bytes finds."""
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
        sections=named_sections(headers),
    )


def named_sections(headers: Headers) -> tuple[Section, ...]:
    """The sections that have a name, in the order of their table."""
    return tuple(
        Section(s.name, s.offset, s.size, nobits=s.type == abi.SHT_NOBITS)
        for s in headers.sections
        if s.name
    )


def read_interpreter(source: CachedSource, headers: Headers) -> str | None:
    """The program that loads the file (PT_INTERP)."""
    for segment in headers.segments:
        if segment.type == abi.PT_INTERP:
            raw = source.read(segment.offset, min(segment.size, _LONGEST_INTERPRETER))
            return text(raw.partition(b"\0")[0]) or None
    return None


def _cut_short(headers: Headers, size: int) -> str | None:
    """Why the file cannot be all that its tables promise, if so.

    Files of split debug information keep the program headers of their object, and sections without
    bytes, so segments count only where there are no sections.
    """
    promised = [s.offset + s.size for s in headers.sections if s.type == abi.SHT_PROGBITS]
    if not headers.sections:
        promised = [s.offset + s.size for s in headers.segments if s.type == abi.PT_LOAD]
    end = max(promised, default=0)
    return f"the file ends at {size}, and its contents go on to {end}" if end > size else None


@dataclass(frozen=True, slots=True)
class _Searched:
    """What the search of a file's bytes searched."""

    device_code: tuple[DeviceCode, ...] = ()
    code_groups: tuple[CodeGroup, ...] = ()
    literals: tuple[Literal, ...] = ()
    marks: tuple[Mark, ...] = ()


def _search(
    source: ByteSource,
    size: int,
    headers: Headers,
    dynamic: Dynamic,
    spent: Spent,
    *,
    names: bool,
) -> _Searched:
    """One pass over the host's data and code, and a walk over the containers of device code."""
    device = DeviceCodeFinder(AheadSource(source), headers.unread, spent)
    device.read_sections(headers, size)
    if headers.machine in codeobject.KINDS:
        # Nothing in there is for the host's loader.
        return _Searched(device.device_code())
    host = HostData(source, device)
    # In code there is nothing to be found but names.
    regions = (
        region for region in host_regions(headers, dynamic, size) if names or not region.executable
    )
    host.search(_granted(regions, spent, headers.unread))
    if names and host.literals.incomplete:
        headers.unread.append(f"more than {MOST_NAMES} names of libraries: only the first are kept")
    return _Searched(
        device.device_code(),
        # What only a linker takes is judged where it was linked.
        device.code_groups() if names else (),
        tuple(name for name in host.literals.literals() if names and not device.holds(name.offset)),
        host.marks.marks(),
    )


def _granted(regions: Iterable[Region], spent: Spent, unread: list[str]) -> Iterator[Region]:
    """As many of the regions as may be searched."""
    for region in regions:
        size = spent.search(region.size, unread)
        if size < region.size:
            yield replace(region, size=size)
            return
        yield region
