"""Shared facts of all verdicts of one tree: its libraries, and their owners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

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


@dataclass(frozen=True, eq=False)
class TreeView:
    """One inventory, as a target sees it."""

    backend: str
    #: Toolkit line of the target's runtime; None if unknown.
    line: str | None
    inventory: Inventory
    evidence: Sequence[Evidence]
    policy: Policy
    catalogue: Catalogue
    resolution: Resolution
    #: True if a lock says that nothing else is installed.
    is_whole: bool = False
    #: Variables of the target's markers.
    environment: Mapping[str, str] | None = None

    @property
    def is_root(self) -> bool:
        """True for a root file system: files that are not in it are missing."""
        return self.resolution.is_root

    @cached_property
    def installed(self) -> Mapping[str, str]:
        """Name of a distribution, and its version."""
        return {item.name: item.version for item in self.inventory.distributions}

    @property
    def is_single(self) -> bool:
        """True for a single wheel: its requirements come when it is installed."""
        return len(self.installed) == 1 and not self.is_whole

    @cached_property
    def required(self) -> Mapping[str, tuple[Required, ...]]:
        """Requirements of distributions (`name==version`)."""
        required: dict[str, tuple[Required, ...]] = {}
        for item in self.inventory.distributions:
            found = requirements(item, self.catalogue, self.environment)
            required[item.owner] = (*required.get(item.owner, ()), *found)
        return required

    @cached_property
    def _files(self) -> Sequence[Binary | Artefact | ClosedFile]:
        """Files that are code of the machine or for a device."""
        files: list[Binary | Artefact | ClosedFile] = [
            *self.inventory.binaries,
            *self.inventory.artefacts,
            *(file for file in self.inventory.closed if file.by != "size"),
        ]
        return [file for file in files if not file.path.endswith(".py")]

    @cached_property
    def native(self) -> Mapping[str, int]:
        """Path of a file that is code of the machine, and its bytes."""
        return {file.path: file.size for file in self._files if not isinstance(file, Artefact)}

    @cached_property
    def native_of(self) -> Mapping[str, int]:
        """The bytes of such files by `name==version`."""
        native_of = Counter[str]()
        for file in self._files:
            if not isinstance(file, Artefact):
                native_of[file.owner or ""] += file.size
        return native_of

    @cached_property
    def held(self) -> frozenset[str]:
        """Distributions (`name==version`) with files that are code of the machine or a device."""
        return frozenset(file.owner for file in self._files if file.owner is not None)

    @cached_property
    def missing(self) -> frozenset[tuple[str, str]]:
        """Path of a binary, and a library that it links and that is missing."""
        return frozenset((needed.binary, needed.name) for needed in self.resolution.missing)

    @cached_property
    def _owners(self) -> Mapping[str, str | None]:
        owners = {file.path: file.owner for file in self.inventory.binaries}
        return owners | {file.path: file.owner for file in self.inventory.closed}

    @cached_property
    def elsewhere(self) -> frozenset[tuple[str, str]]:
        """Path of a binary, and a library that it links and others bring.

        These are another distribution, and the system.
        """
        owners = self._owners
        return frozenset(
            (needed.binary, needed.name)
            for needed in self.resolution.needed
            if needed.paths
            and all(owners.get(path) != owners.get(needed.binary) for path in needed.paths)
        )

    @cached_property
    def libraries(self) -> frozenset[str]:
        """File names and sonames of all libraries in the tree."""
        return frozenset(_names(self.inventory))

    @cached_property
    def reach(self) -> Mapping[str, Reach]:
        """Reach of Python imports to each binary."""
        brought = {
            (item.path, item.detail)
            for item in self.evidence
            if item.kind == "needed"
            and item.backend == self.backend
            and not self.is_root
            and not self.is_other_line(item.detail)
        }
        hopeless_ones = hopeless(self.evidence, self.missing - brought)
        return reach(self.inventory, self.resolution.needed, hopeless_ones)

    @cached_property
    def loads(self) -> Mapping[str, Sequence[PythonLoad]]:
        """Libraries that imports load by name in Python, and fail without; by `name==version`."""
        loads: dict[str, list[PythonLoad]] = {}
        for call in self.inventory.python_loads:
            if call.owner is not None and call.reach == "import" and call.call in _LOADING:
                loads.setdefault(call.owner, []).append(call)
        return loads

    @cached_property
    def imports(self) -> Mapping[str, Sequence[Imported]]:
        """Imports of Python code from other distributions; by `name==version`."""
        return find_imports(self.inventory.python_imports, self.installed, self.catalogue)

    @cached_property
    def runtimes(self) -> frozenset[str]:
        """Backends whose runtime library is in the tree."""
        return runtimes(self.evidence)

    @cached_property
    def supplied(self) -> Mapping[str, frozenset[str]]:
        """By `name==version`, backends whose libraries come with what it requires.

        Of one wheel alone that is not in the tree yet.
        """
        return {
            item.owner: frozenset(
                match.backend
                for _, match in self.find_vendor_requirements(item.owner)
                if match.kind != "pure"
            )
            for item in self.inventory.distributions
            if self.is_single
        }

    @cached_property
    def carried(self) -> Mapping[str, PackedSizeRange]:
        """Path of a binary, and the bytes of a wheel or a layer that carry its device code."""
        return measure_device_code(self.inventory)

    @cached_property
    def incomplete(self) -> frozenset[str | None]:
        """Distributions (`name==version`) whose binaries were not all read."""
        binaries = (item.owner for item in self.inventory.binaries if item.elf.read is not None)
        closed = (
            file.owner
            for file in self.inventory.closed
            if file.by == "bytes" or not file.path.endswith(".py")
        )
        return frozenset((*binaries, *closed))

    @cached_property
    def unread_python(self) -> frozenset[str | None]:
        """Distributions whose Python files that an import may run were not all read."""
        return frozenset(
            file.owner
            for file in self.inventory.closed
            if file.by != "bytes" and file.path.endswith(".py") and not file.lazy
        )

    @cached_property
    def _undecided(self) -> frozenset[str | None]:
        return frozenset(file.owner for file in self.inventory.closed if may_decide(file))

    @cached_property
    def standings(self) -> Mapping[str, Standing]:
        """Standings of distributions (`name==version`) that are builds for a vendor by their name.

        Of those of which a file is known.
        """
        inventory = self.inventory
        statements = {
            item.owner: (item, match.vendor)
            for item in inventory.distributions
            for match in (
                distribution(item.name, item.version, self.catalogue),
                build_of(item.name, self.catalogue),
            )
            if match is not None and match.is_build and match.vendor is not None
        }
        if not statements:
            return {}
        # A binary may also link a library, or have much device code.
        unread = (
            self.unread_python
            | self._undecided
            | {
                binary.owner
                for binary in inventory.binaries
                if not binary.elf.dynamic_read or unread_room(binary) > self.policy.bloat_threshold
            }
        )
        vendors: dict[str, set[str]] = {}
        for seen in self.evidence:
            if seen.kind != "declared" and seen.weight == "strong":
                vendors.setdefault(seen.path, set()).add(seen.vendor)
        links: dict[str, list[str]] = {}
        for needed in self.resolution.needed:
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
                for needed in self.required[item.owner]
                if needed.active and needed.match is not None and needed.match.weight == "strong"
            )
            if vendor in required or any(vendor in vendors.get(path, ()) for path in reached):
                result[owner] = "held"
            elif owner in unread:
                result[owner] = "open"
            elif item.size or owner in files:
                result[owner] = "refuted"
        return result

    @cached_property
    def used(self) -> frozenset[str]:
        """Distributions (`name==version`) that others use.

        Code of another one links them, or its metadata require them.
        """
        return frozenset(self._find_used())

    def _find_used(self) -> Iterator[str]:
        owners = self._owners
        for needed in self.resolution.needed:
            for path in needed.paths:
                owner = owners.get(path)
                if owner is not None and owner != owners.get(needed.binary):
                    yield owner
        native = {binary.owner for binary in self.inventory.binaries} | self._undecided
        present = {item.name: item.owner for item in self.inventory.distributions}
        for item in self.inventory.distributions:
            if item.owner in native:
                for required in self.required[item.owner]:
                    for name in required.brings if required.active else ():
                        if name in present:
                            yield present[name]

    @cached_property
    def sites(self) -> Mapping[str, str]:
        """By `name==version`, the folder of its modules, with a slash at its end or empty."""
        return {item.owner: item.site for item in self.inventory.distributions}

    @cached_property
    def alien(self) -> Mapping[str, Sequence[tuple[PythonImport | PythonLoad, Artefact]]]:
        """By importer (`name==version`), imports and loads of own files for another system alone.

        That is Windows or macOS.
        """
        files = {
            (artefact.owner, artefact.path.rpartition("/")[2]): artefact
            for artefact in self.inventory.artefacts
            if artefact.kind in ("pe", "macho")
        }
        modules = {(owner, name.partition(".")[0]): file for (owner, name), file in files.items()}
        found: dict[str, list[tuple[PythonImport | PythonLoad, Artefact]]] = {}
        for owner in dict.fromkeys(owner for owner, _ in files if owner is not None):
            for call in self.loads.get(owner, ()):
                if call.call == "find_library":
                    continue  # It returns None.
                loaded = [files.get((owner, name.rpartition("/")[2])) for name in call.names]
                # A load of several names tries one after the other.
                if loaded and loaded[0] is not None and None not in loaded:
                    found.setdefault(owner, []).append((call, loaded[0]))
        for statement in self.inventory.python_imports if modules else ():
            artefact = modules.get((statement.owner, statement.module.rpartition(".")[2]))
            is_own = statement.how == "missing" and statement.provider is not None
            if is_own and artefact is not None:
                found.setdefault(statement.owner, []).append((statement, artefact))
        return found

    def find_vendor_requirements(self, owner: str) -> Iterator[tuple[str, DistributionMatch]]:
        """Yield what a distribution (`name==version`) requires that belongs to some backend.

        What is installed says what it is. For a wheel by itself (`is_single`) the default index
        would be asked.
        """
        for required in self.required[owner]:
            for name in required.brings if required.active else ():
                if name not in self.installed and not self.is_single:
                    continue
                match = distribution(name, self.installed.get(name, ""), self.catalogue)
                if match is None or match.vendor is None:
                    continue
                if match.weight == "strong" or match.kind in ("default-build", "multi-backend"):
                    yield name, match

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
        """Return True if only other toolkit lines of this backend have a library of this name.

        Libraries of several lines, or of no line in the catalogue, are no sign of another one.
        """
        if self.line is None:
            return False
        return any(
            bool(match.lines) and self.line not in match.lines
            for match in library(name, None, self.catalogue)
            if match.owned.backend == self.backend
        )

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
