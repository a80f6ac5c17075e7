"""What all verdicts of one tree have in common: its libraries, and whose they are here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import distribution, library
from buildmatrix.catalogue.model import DistributionMatch, Evidence
from buildmatrix.catalogue.names import demangle, matches_any
from buildmatrix.catalogue.requirements import requirements
from buildmatrix.inventory.model import (
    Artefact,
    Binary,
    ClosedFile,
    Distribution,
    Inventory,
    PythonLoad,
)
from buildmatrix.loader.resolution import Resolution
from buildmatrix.python_imports.reach import Reach
from buildmatrix.rules.belonging import is_foreign
from buildmatrix.rules.carried import Carried, device_code_bytes
from buildmatrix.rules.imports import Imported, imported, runtimes
from buildmatrix.rules.reach import hopeless, reach
from buildmatrix.spec.model import Policy

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


@dataclass(frozen=True, slots=True)
class TreeView:
    """One tree, as a target sees it."""

    backend: str
    #: Toolkit line of the target's runtime; None where nothing says it.
    line: str | None
    catalogue: Catalogue
    #: Whether it is a root file system: what is not in it is missing.
    is_root: bool
    #: Whether it is one wheel by itself: what that requires comes when it is installed.
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
    #: What imports load by a name in Python, and fail without; by `name==version`.
    loads: Mapping[str, Sequence[PythonLoad]]
    #: What Python code imports from other distributions; by `name==version`.
    imports: Mapping[str, Sequence[Imported]]
    #: Backends whose runtime library is in the tree.
    runtimes: frozenset[str]
    #: By `name==version`, backends whose libraries come with what it requires: of one wheel alone
    #: that is not in the tree yet.
    supplied: Mapping[str, frozenset[str]]
    #: Path of a binary, and the bytes of a wheel or a layer that carry its device code.
    carried: Mapping[str, Carried]
    #: Distributions (`name==version`) whose binaries, and whose Python files that an import may
    #: run, were not all read.
    incomplete: frozenset[str | None]
    unread_python: frozenset[str | None]
    policy: Policy

    def is_foreign(self, item: Evidence | DistributionMatch) -> bool:
        """Whether a thing belongs to another vendor than the backend does."""
        return is_foreign(item, self.backend, self.catalogue)

    def holds(self, names: Iterable[str | None]) -> bool:
        """Whether one of `names` is that of a library in the tree; `libx.so*` is any version."""
        begins = tuple(name[:-1] for name in names if name is not None and name.endswith(".so*"))
        return not self.libraries.isdisjoint(names) or (
            bool(begins) and any(item.startswith(begins) for item in self.libraries)
        )

    def is_other_line(self, name: str) -> bool:
        """Whether only other toolkit lines of this backend have a library of this name."""
        return is_other_line(name, self.backend, self.line, self.catalogue)

    def is_absent(self, evidence: Evidence) -> bool:
        """Whether a library that a file links will not be there when the target runs.

        What a tree that is no root file system lacks of this backend, a base image brings: in the
        target's toolkit line, and in no other.
        """
        if (evidence.path, evidence.detail) not in self.missing:
            return False
        return self.is_foreign(evidence) or self.is_root or self.is_other_line(evidence.detail)

    def may_be_missing(self, evidence: Evidence) -> bool:
        """Whether the host gives a library, or the policy allows that nothing does."""
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
) -> TreeView:
    """An inventory as a target of `backend` and toolkit line `line` sees it.

    `is_whole`: a lock says that nothing else is installed.
    """
    loads: dict[str, list[PythonLoad]] = {}
    for call in inventory.python_loads:
        if call.owner is not None and call.reach == "import" and call.call in _LOADING:
            loads.setdefault(call.owner, []).append(call)
    installed = {item.name: item.version for item in inventory.distributions}
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
    return TreeView(
        backend=backend,
        line=line,
        catalogue=catalogue,
        is_root=resolution.is_root,
        is_single=is_single,
        installed=installed,
        native={file.path: file.size for file in native},
        native_of=_by_owner(native),
        held=frozenset(
            file.owner for file in files if file.owner is not None and not file.path.endswith(".py")
        ),
        missing=missing,
        elsewhere=frozenset(_elsewhere(inventory, resolution)),
        libraries=frozenset(_names(inventory)),
        reach=reach(inventory, resolution.needed, hopeless(evidence, missing - brought)),
        loads=loads,
        imports=imported(inventory.python_imports, installed, catalogue),
        runtimes=runtimes(evidence),
        supplied={
            item.owner: frozenset(
                match.backend
                for _, match in required_by(item, installed, catalogue, is_single=is_single)
                if match.kind != "pure"
            )
            for item in inventory.distributions
            if is_single
        },
        carried=device_code_bytes(inventory),
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
        unread_python=frozenset(
            closed_file.owner
            for closed_file in inventory.closed
            if closed_file.by != "bytes"
            and closed_file.path.endswith(".py")
            and not closed_file.lazy
        ),
        policy=policy,
    )


def is_other_line(name: str, backend: str, line: str | None, catalogue: Catalogue) -> bool:
    """Whether only other toolkit lines than `line` have a library of this name.

    What several lines share, and what the catalogue gives no line, is no sign of another one.
    """
    if line is None:
        return False
    return any(
        match.owned.backend == backend and bool(match.lines) and line not in match.lines
        for match in library(name, None, catalogue)
    )


def required_by(
    item: Distribution, installed: Mapping[str, str], catalogue: Catalogue, *, is_single: bool
) -> Iterator[tuple[str, DistributionMatch]]:
    """Distributions that `item` requires without condition and that belong to some backend.

    What is installed says what it is. For a wheel by itself (`is_single`) the default index would
    be asked.
    """
    for required in requirements(item, catalogue):
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


def _by_owner(files: Iterable[Binary | ClosedFile | Artefact]) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for file in files:
        counts[file.owner or ""] += file.size
    return counts


def _elsewhere(inventory: Inventory, resolution: Resolution) -> Iterator[tuple[str, str]]:
    files: list[Binary | ClosedFile] = [*inventory.binaries, *inventory.closed]
    owners = {file.path: file.owner for file in files}
    for needed in resolution.needed:
        paths = (needed.path,) if needed.path is not None else needed.anywhere
        if paths and all(owners.get(path) != owners.get(needed.binary) for path in paths):
            yield needed.binary, needed.name


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
