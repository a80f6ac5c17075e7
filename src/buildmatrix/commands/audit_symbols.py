"""Select the libraries of which an audit reads symbol tables, across the wheels of a lock.

Vendors ship each library in its own wheel, and most wheels require the others without a version, so
a resolver may pick a library older than its users. An audit reads the libraries of distributions
that require a vendor's library, and the libraries that define their symbols. If a distribution pins
both with `==`, and the lock has these versions, they were built and tested together and are
skipped, as in every set that torch or tensorflow pins.

The selection depends on lists of files, metadata and bytes, never on a cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.parsing import requirement_or_none, version_or_none
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.model import Binary, ClosedFile, Distribution, Inventory
from buildmatrix.facts.loader import Resolution
from buildmatrix.facts.loader_binding import unread_libraries
from buildmatrix.facts.loader_process import file_name
from buildmatrix.judge.locks import resolve_wheels
from buildmatrix.judge.subject import LinkedFiles
from buildmatrix.locks.index.model import Member, WheelFacts, tables_cost
from buildmatrix.locks.requires import requirements
from buildmatrix.locks.selection import marker_environment
from buildmatrix.matrix.model import Target

#: Rounds of reading: who needs symbols, some after the others, who should have them, and who could.
ROUNDS = 16
#: Libraries of one wheel that are looked at, the largest first.
MOST_LIBRARIES = 64
#: Numbers of a version that name one release of a library, before `.*`.
LEAST_PINNED = 2
#: Meta packages of meta packages that pins are followed through.
MOST_STEPS = 4
_LIBRARY = re.compile(r"\.so(?:\.\d+)*$")
#: Where repair tools put copies for one distribution alone, under names of their own.
_PRIVATE = re.compile(r"(?:^|/)[^/]+\.libs/")


class Edge(Struct, frozen=True):
    """A distribution that requires a vendor's library, and that library's."""

    importer: str
    provider: str


def find_edges(
    distributions: Iterable[Distribution],
    members: Mapping[str, Sequence[Member]],
    target: Target,
    catalogue: Catalogue,
) -> tuple[Edge, ...]:
    """Return the edges between wheels, by name in `members`, that no pins vouch for.

    Libraries for other backends than that of `target` are not used there.
    """
    outer = {item.name: item for item in distributions if "/" not in item.path}
    providers = {
        name
        for name, item in outer.items()
        if _is_for(item, target.backend, catalogue) and any(map(_is_shared, members.get(name, ())))
    }
    if not providers:
        return ()
    environment = marker_environment(target)
    required: dict[str, set[str]] = {}
    pinned: dict[str, set[str]] = {}
    for name, item in outer.items():
        for need in requirements(item.requires, outer, environment):
            if need.extra is None:
                required.setdefault(name, set()).add(need.name)
            if _pins(need.line, outer[need.name].version):
                pinned.setdefault(name, {name}).add(need.name)
    # torch pins a toolkit's meta package, and that its libraries.
    for _ in range(MOST_STEPS):
        further = {
            name: pins.union(*(pinned.get(other, ()) for other in pins))
            for name, pins in pinned.items()
        }
        if further == pinned:
            break
        pinned = further
    return tuple(
        Edge(importer, provider)
        for importer, names in sorted(required.items())
        for provider in sorted(names & providers - {importer})
        if importer in members and not any({importer, provider} <= pins for pins in pinned.values())
    )


def _is_for(item: Distribution, backend: str, catalogue: Catalogue) -> bool:
    """Return True if a distribution is one of a vendor's libraries for a backend."""
    match = distribution(item.name, item.version, catalogue)
    return match is not None and match.kind == "native" and match.backend == backend


def _is_shared(member: Member) -> bool:
    """Return True if other distributions may link the file."""
    name = member.path.rpartition("/")[2]
    return (
        name.startswith("lib")
        and _LIBRARY.search(name) is not None
        and not _PRIVATE.search(member.path)
    )


def _shared_names(facts: WheelFacts) -> set[str]:
    """File names of the libraries that other distributions may link."""
    return {member.path.rpartition("/")[2] for member in facts.members if _is_shared(member)}


def _pins(line: str, version: str) -> bool:
    """Return True if a requirement allows only builds of one release, `version` among them."""
    requirement = requirement_or_none(line)
    parsed = version_or_none(version)
    if requirement is None or parsed is None:
        return False
    return any(
        item.operator in ("==", "===")
        # `13.0.2.*` of a toolkit's meta package is one release.
        and (not item.version.endswith(".*") or item.version.count(".") > LEAST_PINNED)
        for item in requirement.specifier
    ) and requirement.specifier.contains(parsed, prereleases=True)


def find_importers(
    edges: Iterable[Edge], facts: Mapping[str, WheelFacts]
) -> Mapping[str, Sequence[Member]]:
    """Return the members whose tables show who needs symbols, by the name of a distribution.

    Without those whose tables were read, and those that link nothing of the other side.
    """
    wanted: dict[str, dict[str, Member]] = {}
    for edge in edges:
        shared = _shared_names(facts[edge.provider])
        read = {item.path: item.elf for item in facts[edge.importer].inventory.loadable}
        for member in facts[edge.importer].members:
            name = member.path.rpartition("/")[2]
            elf = read.get(member.path)
            if _LIBRARY.search(name) is None or (elf is not None and elf.binding is not None):
                continue
            if elf is not None and elf.dynamic_read and shared.isdisjoint(elf.needed):
                continue
            wanted.setdefault(edge.importer, {})[member.path] = member
    return {
        name: sorted(found.values(), key=lambda member: (-member.size, member.path))[
            :MOST_LIBRARIES
        ]
        for name, found in wanted.items()
    }


def add_tables(
    inventory: Inventory, tables: Mapping[tuple[str, str], Elf | None]
) -> LinkedFiles | None:
    """Return `inventory` with `tables`, by owner and path; None where they add nothing."""
    known = {place: elf for place, elf in tables.items() if elf is not None}
    if not known:
        return None
    binaries = [
        replace(item, elf=elf)
        if item.elf.binding is None
        and item.container is None
        and (elf := known.get((item.owner or "", item.path))) is not None
        else item
        for item in inventory.binaries
    ]
    closed = []
    for file in inventory.closed:
        elf = known.get((file.owner or "", file.path))
        if elf is None:
            closed.append(file)
        else:
            binaries.append(Binary(file.path, file.size, elf, file.owner))
    binaries.sort(key=lambda item: (item.path, item.owner or ""))
    linked = replace(inventory, binaries=tuple(binaries), closed=tuple(closed))
    return LinkedFiles(linked, resolve_wheels(linked))


def find_unread(
    linked: LinkedFiles, edges: Sequence[Edge], facts: Mapping[str, WheelFacts]
) -> Iterator[tuple[str, Member]]:
    """Yield what has to be read next: the name of a distribution, and a member of its wheel."""
    owners = {
        item.owner: item.name for item in linked.inventory.distributions if "/" not in item.path
    }
    chosen = {edge.importer for edge in edges}
    shared = {name for edge in edges for name in _shared_names(facts[edge.provider])}
    objects = {
        item.path
        for item in linked.inventory.loadable
        if owners.get(item.owner or "") in chosen and item.elf.binding is not None
    }
    unread = set(unread_libraries(linked.inventory, linked.resolution, objects, shared))
    for name, wheel_facts in facts.items():
        for member in wheel_facts.members if unread else ():
            if member.path in unread:
                yield name, member


def tell_more(linked: LinkedFiles, resolution: Resolution) -> bool:
    """Return True if tables show symbols that are missing, or links to another major version.

    `resolution` is the one without the tables.
    """
    links = set(linked.resolution.missing) - set(resolution.missing)
    stems = {needed.name.rpartition(".so.")[0] for needed in links} - {""}
    files: tuple[Binary | ClosedFile, ...] = (*linked.inventory.loadable, *linked.inventory.closed)
    return any(
        ".so." in file.path and file_name(file.path).rpartition(".so.")[0] in stems
        for file in files
    ) or bool(linked.unbound)


def take_affordable(
    wanted: Mapping[str, Sequence[Member]], most: int
) -> Mapping[str, Sequence[Member]]:
    """Return those members that `most` bytes are enough for, by the keys of `wanted`.

    The first ones of each wheel come first, and of those the ones of wheels with few.
    """
    ordered = sorted(
        (number, len(members), name, member.path, tables_cost(member), member)
        for name, members in wanted.items()
        for number, member in enumerate(members)
    )
    taken: dict[str, list[Member]] = {}
    for _, _, name, _, cost, member in ordered:
        content = member.crc, member.size
        if any(content == (item.crc, item.size) for item in taken.get(name, ())):
            cost = 0
        if cost <= most:
            most -= cost
            taken.setdefault(name, []).append(member)
    return taken
