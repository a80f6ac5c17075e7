"""Shared facts of all verdicts of one tree: its libraries, and their owners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Literal

from msgspec import Struct

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import build_of, distribution, library
from buildmatrix.catalogue.model import DistributionMatch, Evidence, demangle, matches_any
from buildmatrix.catalogue.releases import Required, requirements
from buildmatrix.facts.elf.model import SUFFIXES
from buildmatrix.facts.inventory.listing import LEAST
from buildmatrix.facts.inventory.model import (
    Artefact,
    Binary,
    ClosedFile,
    Inventory,
    PythonImport,
    PythonLoad,
)
from buildmatrix.facts.loader import Resolution
from buildmatrix.facts.python_imports import Reach
from buildmatrix.judge.evidence import (
    Imported,
    PackedSizeRange,
    closure,
    find_imports,
    hopeless,
    is_foreign,
    measure_device_code,
    reach,
    runtimes,
)
from buildmatrix.matrix.model import Policy

#: Standing of the statement that a build is for a vendor: the bytes have something of that vendor,
#: or not enough was read, or they were read and have nothing of it.
Standing = Literal["held", "open", "refuted"]

#: Suffixes of what is code of a device or of the machine however small it is. Files without one
#: that are small decide nothing: time zones, dictionaries.
_TELLING = SUFFIXES | {"a", "o"}

#: Calls in Python that fail when the library is not there.
_LOADING = (
    "CDLL",
    "PyDLL",
    "LoadLibrary",
    "dlopen",
    "load_library",
    "load_op_library",
    "load_nvidia_dynamic_lib",
    "_dlopen",
    "find_library",
)


class TreeView(Struct, frozen=True):
    """One tree, as a target sees it."""

    backend: str
    #: Toolkit line of the target's runtime; None if unknown.
    line: str | None
    catalogue: Catalogue
    #: True for a root file system: files that are not in it are missing.
    is_root: bool
    #: True for a single wheel: its requirements come when it is installed.
    is_single: bool
    #: Name of a distribution, and its version.
    installed: Mapping[str, str]
    #: Path of a file that is code of the machine, and its bytes; the same by `name==version`.
    native: Mapping[str, int]
    native_of: Mapping[str, int]
    #: Distributions (`name==version`) with files that are code of the machine or for a device.
    held: frozenset[str]
    #: Path of a binary, and a library that it links and that is missing.
    missing: frozenset[tuple[str, str]]
    #: Path of a binary, and a library that it links and that another distribution or the system
    #: brings.
    elsewhere: frozenset[tuple[str, str]]
    #: File names and sonames of all libraries in the tree.
    libraries: frozenset[str]
    reach: Mapping[str, Reach]
    #: Libraries that imports load by name in Python, and fail without; by `name==version`.
    loads: Mapping[str, Sequence[PythonLoad]]
    #: Imports of Python code from other distributions; by `name==version`.
    imports: Mapping[str, Sequence[Imported]]
    #: Backends whose runtime library is in the tree.
    runtimes: frozenset[str]
    #: By `name==version`, backends whose libraries come with what it requires: of one wheel alone
    #: that is not in the tree yet.
    supplied: Mapping[str, frozenset[str]]
    #: Path of a binary, and the bytes of a wheel or a layer that carry its device code.
    carried: Mapping[str, PackedSizeRange]
    #: Distributions (`name==version`) whose binaries, and whose Python files that an import may
    #: run, were not all read.
    incomplete: frozenset[str | None]
    unread_python: frozenset[str | None]
    #: Standings of distributions (`name==version`) that their name or version calls a build for a
    #: vendor, if a file of them is known.
    standings: Mapping[str, Standing]
    policy: Policy
    #: Distributions (`name==version`) that code of another one links or whose metadata require.
    used: frozenset[str]
    #: Folder of a distribution's modules (`name==version`), with a slash at its end or empty.
    sites: Mapping[str, str]
    #: By importer (`name==version`), imports of own modules that are only there for another system.
    alien: Mapping[str, tuple[tuple[PythonImport | PythonLoad, Artefact], ...]]
    #: Requirements of distributions (`name==version`).
    required: Mapping[str, tuple[Required, ...]]

    def is_foreign(self, item: Evidence | DistributionMatch) -> bool:
        """Return True if a thing belongs to another vendor than the backend does."""
        return is_foreign(item, self.backend, self.catalogue)

    def holds(self, names: Iterable[str | None]) -> bool:
        """Return True if the tree has a library with one of `names`; `libx.so*` is any version."""
        begins = tuple(name[:-1] for name in names if name is not None and name.endswith(".so*"))
        return not self.libraries.isdisjoint(names) or (
            bool(begins) and any(item.startswith(begins) for item in self.libraries)
        )

    def is_other_line(self, name: str) -> bool:
        """Return True if only other toolkit lines of this backend have a library of this name."""
        return is_other_line(name, self.backend, self.line, self.catalogue)

    def is_absent(self, evidence: Evidence) -> bool:
        """Return True if a library that a file links will be missing when the target runs.

        If the tree is not a root file system, a base image provides this backend's missing
        libraries, in the target's toolkit line only.
        """
        if (evidence.path, evidence.detail) not in self.missing:
            return False
        return self.is_foreign(evidence) or self.is_root or self.is_other_line(evidence.detail)

    def may_be_missing(self, evidence: Evidence) -> bool:
        """Return True if the host provides a library, or the policy allows that nothing does."""
        if self.is_foreign(evidence):
            return False
        allowed = self.policy.allow_unresolved
        globs = (*allowed.get("*", ()), *allowed.get(self.backend, ()))
        return evidence.where == "host" or matches_any(globs, evidence.detail)


def tree_of(
    backend: str,
    line: str | None,
    inventory: Inventory,
    evidence: Sequence[Evidence],
    policy: Policy,
    catalogue: Catalogue,
    resolution: Resolution,
    *,
    is_whole: bool = False,
    environment: Mapping[str, str] | None = None,
) -> TreeView:
    """An inventory as a target of `backend` and toolkit line `line` sees it.

    `is_whole`: a lock says that nothing else is installed.
    """
    loads: dict[str, list[PythonLoad]] = {}
    for call in inventory.python_loads:
        if call.owner is not None and call.reach == "import" and call.call in _LOADING:
            loads.setdefault(call.owner, []).append(call)
    installed = {item.name: item.version for item in inventory.distributions}
    required: dict[str, tuple[Required, ...]] = {}
    for item in inventory.distributions:
        found = requirements(item, catalogue, environment)
        required[item.owner] = (*required.get(item.owner, ()), *found)
    unread_python = frozenset(
        file.owner
        for file in inventory.closed
        if file.by != "bytes" and file.path.endswith(".py") and not file.lazy
    )
    undecided = frozenset(file.owner for file in inventory.closed if may_decide(file))
    #: Distributions with a binary that may link a library, or have much device code.
    may_hide = frozenset(
        binary.owner
        for binary in inventory.binaries
        if not binary.elf.dynamic_read or unread_room(binary) > policy.bloat_threshold
    )
    is_single = len(installed) == 1 and not is_whole
    missing = frozenset((needed.binary, needed.name) for needed in resolution.missing)
    brought = {
        (item.path, item.detail)
        for item in evidence
        if item.kind == "needed"
        and item.backend == backend
        and not resolution.is_root
        and not is_other_line(item.detail, backend, line, catalogue)
    }
    files: list[Binary | Artefact | ClosedFile] = [
        *inventory.binaries,
        *inventory.artefacts,
        *(closed_file for closed_file in inventory.closed if closed_file.by != "size"),
    ]
    native = [
        file for file in files if not isinstance(file, Artefact) and not file.path.endswith(".py")
    ]
    native_of = Counter[str]()
    for native_file in native:
        native_of[native_file.owner or ""] += native_file.size
    owners = {file.path: file.owner for file in inventory.binaries}
    owners |= {file.path: file.owner for file in inventory.closed}
    return TreeView(
        backend=backend,
        line=line,
        catalogue=catalogue,
        is_root=resolution.is_root,
        is_single=is_single,
        installed=installed,
        native={file.path: file.size for file in native},
        native_of=native_of,
        held=frozenset(
            file.owner for file in files if file.owner is not None and not file.path.endswith(".py")
        ),
        missing=missing,
        elsewhere=frozenset(
            (needed.binary, needed.name)
            for needed in resolution.needed
            if needed.paths
            and all(owners.get(path) != owners.get(needed.binary) for path in needed.paths)
        ),
        libraries=frozenset(_names(inventory)),
        reach=reach(inventory, resolution.needed, hopeless(evidence, missing - brought)),
        loads=loads,
        imports=find_imports(inventory.python_imports, installed, catalogue),
        runtimes=runtimes(evidence),
        supplied={
            item.owner: frozenset(
                match.backend
                for _, match in find_vendor_requirements(
                    required[item.owner], installed, catalogue, is_single=is_single
                )
                if match.kind != "pure"
            )
            for item in inventory.distributions
            if is_single
        },
        carried=measure_device_code(inventory),
        incomplete=frozenset(
            (
                *(binary.owner for binary in inventory.binaries if binary.elf.read is not None),
                *(
                    closed_file.owner
                    for closed_file in inventory.closed
                    if closed_file.by == "bytes" or not closed_file.path.endswith(".py")
                ),
            )
        ),
        unread_python=unread_python,
        standings=_standings(
            inventory,
            evidence,
            resolution,
            catalogue,
            required,
            unread=unread_python | undecided | may_hide,
        ),
        policy=policy,
        used=frozenset(_find_used(inventory, resolution, required, undecided, owners)),
        sites={item.owner: item.site for item in inventory.distributions},
        alien=_alien(inventory, loads),
        required=required,
    )


def _alien(
    inventory: Inventory, loads: Mapping[str, Iterable[PythonLoad]]
) -> Mapping[str, tuple[tuple[PythonImport | PythonLoad, Artefact], ...]]:
    """Imports and loads of files that a distribution has for Windows or macOS alone."""
    files = {
        (artefact.owner, artefact.path.rpartition("/")[2]): artefact
        for artefact in inventory.artefacts
        if artefact.kind in ("pe", "macho")
    }
    modules = {(owner, name.partition(".")[0]): file for (owner, name), file in files.items()}
    found: dict[str, list[tuple[PythonImport | PythonLoad, Artefact]]] = {}
    for owner in dict.fromkeys(owner for owner, _ in files if owner is not None):
        for call in loads.get(owner, ()):
            if call.call == "find_library":
                continue  # It returns None.
            loaded = [files.get((owner, name.rpartition("/")[2])) for name in call.names]
            # A load of several names tries one after the other.
            if loaded and loaded[0] is not None and None not in loaded:
                found.setdefault(owner, []).append((call, loaded[0]))
    for statement in inventory.python_imports if modules else ():
        artefact = modules.get((statement.owner, statement.module.rpartition(".")[2]))
        if statement.how == "missing" and statement.provider is not None and artefact is not None:
            found.setdefault(statement.owner, []).append((statement, artefact))
    return {owner: tuple(several) for owner, several in found.items()}


def may_decide(file: ClosedFile) -> bool:
    """Return True if a file could be a relevant binary or device code."""
    if file.by == "bytes" or file.size >= LEAST:
        return True
    name = file.path.rpartition("/")[2]
    return ".so" in name or name.rpartition(".")[2].lower() in _TELLING


def unread_room(binary: Binary) -> int:
    """The most bytes of a binary that were not read and may be device code."""
    room = binary.elf.unread_data if binary.elf.read is not None else 0
    # Whatever it is, it is packed into the bytes of the file.
    return room if binary.packed is None else min(room, binary.packed)


def _standings(
    inventory: Inventory,
    evidence: Iterable[Evidence],
    resolution: Resolution,
    catalogue: Catalogue,
    requires: Mapping[str, tuple[Required, ...]],
    unread: Collection[str | None],
) -> Mapping[str, Standing]:
    """Return the standings of distributions' names and versions by their bytes."""
    statements = {
        item.owner: (item, match.vendor)
        for item in inventory.distributions
        for match in (
            distribution(item.name, item.version, catalogue),
            build_of(item.name, catalogue),
        )
        if match is not None and match.is_build and match.vendor is not None
    }
    if not statements:
        return {}
    vendors: dict[str, set[str]] = {}
    for seen in evidence:
        if seen.kind != "declared" and seen.weight == "strong":
            vendors.setdefault(seen.path, set()).add(seen.vendor)
    links: dict[str, list[str]] = {}
    for needed in resolution.needed:
        links.setdefault(needed.binary, []).extend(needed.paths)
    files: dict[str, list[str]] = {}
    owned: list[Binary | Artefact | ClosedFile | PythonLoad] = []
    owned += inventory.binaries
    owned += inventory.artefacts
    owned += inventory.closed
    owned += inventory.python_loads
    for file in owned:
        if file.owner in statements:
            files.setdefault(file.owner, []).append(file.path)
    result: dict[str, Standing] = {}
    for owner, (item, vendor) in statements.items():
        reached = closure(files.get(owner, ()), links)
        required = (
            needed.match.vendor
            for needed in requires[item.owner]
            if needed.active and needed.match is not None and needed.match.weight == "strong"
        )
        if vendor in required or any(vendor in vendors.get(path, ()) for path in reached):
            result[owner] = "held"
        elif owner in unread:
            result[owner] = "open"
        elif item.size or owner in files:
            result[owner] = "refuted"
    return result


def is_other_line(name: str, backend: str, line: str | None, catalogue: Catalogue) -> bool:
    """Return True if only other toolkit lines than `line` have a library of this name.

    Libraries of several lines, or of no line in the catalogue, are no sign of another one.
    """
    if line is None:
        return False
    return any(
        match.owned.backend == backend and bool(match.lines) and line not in match.lines
        for match in library(name, None, catalogue)
    )


def find_vendor_requirements(
    requires: Iterable[Required],
    installed: Mapping[str, str],
    catalogue: Catalogue,
    *,
    is_single: bool,
) -> Iterator[tuple[str, DistributionMatch]]:
    """Yield unconditionally required distributions that belong to some backend.

    What is installed says what it is. For a wheel by itself (`is_single`) the default index would
    be asked.
    """
    for required in requires:
        if not required.active:
            continue
        for name in required.brings:
            if name not in installed and not is_single:
                continue
            match = distribution(name, installed.get(name, ""), catalogue)
            if match is None or match.vendor is None:
                continue
            if match.weight == "strong" or match.kind in ("default-build", "multi-backend"):
                yield name, match


def _find_used(
    inventory: Inventory,
    resolution: Resolution,
    requires: Mapping[str, tuple[Required, ...]],
    undecided: Set[str | None],
    owners: Mapping[str, str | None],
) -> Iterator[str]:
    """Yield distributions whose files another one links, or that one with such code requires."""
    for needed in resolution.needed:
        for path in needed.paths:
            owner = owners.get(path)
            if owner is not None and owner != owners.get(needed.binary):
                yield owner
    native = {binary.owner for binary in inventory.binaries} | undecided
    present = {item.name: item.owner for item in inventory.distributions}
    for item in inventory.distributions:
        if item.owner in native:
            for required in requires[item.owner]:
                for name in required.brings if required.active else ():
                    if name in present:
                        yield present[name]


def _names(inventory: Inventory) -> Iterator[str]:
    """Names that a loader would find something under, somewhere in the tree."""
    for binary in inventory.loadable:
        yield demangle(binary.path.rpartition("/")[2])
        if binary.elf.soname:
            yield demangle(binary.elf.soname)
    for link in inventory.links:
        yield link.path.rpartition("/")[2]
    for file in inventory.closed:
        yield demangle(file.path.rpartition("/")[2])
