"""Imports of Python packages: from other distributions, and down to each file that they load."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.match import distribution
from buildmatrix.catalogue.model import DistributionMatch, Evidence
from buildmatrix.facts.inventory.listing import distribution_name
from buildmatrix.facts.inventory.model import Inventory, PythonImport
from buildmatrix.facts.loader.resolver import Needed
from buildmatrix.facts.python_imports import Reach
from buildmatrix.judge.model import Verdict

# Owners of imported modules.
#
# An import that fails inside another distribution fails all the same. If the tree contains that
# distribution, its own files decide; for a single wheel, the catalogue knows its requirements.


#: Parts of a module's name that a distribution's name may be made of: `cuda.bindings`.
_MOST_PARTS = 3


@dataclass(frozen=True, slots=True)
class Imported:
    """An import statement, and the catalogue's match of the imported distribution."""

    statement: PythonImport
    match: DistributionMatch

    @property
    def place(self) -> str:
        """`path:line`"""
        return f"{self.statement.path}:{self.statement.line}"


def find_imports(
    statements: Sequence[PythonImport], installed: Mapping[str, str], catalogue: Catalogue
) -> Mapping[str, tuple[Imported, ...]]:
    """Map importers (`name==version`) to their imports in the catalogue."""
    by_importer: dict[str, list[Imported]] = {}
    for python_import in statements:
        match = _match(python_import, installed, catalogue)
        if python_import.how == "missing" and python_import.provider is None:
            match = find_system_backend(python_import.module, catalogue) or match
        if match is not None:
            by_importer.setdefault(python_import.owner, []).append(Imported(python_import, match))
    return {owner: tuple(imports) for owner, imports in by_importer.items()}


def _match(
    python_import: PythonImport, installed: Mapping[str, str], catalogue: Catalogue
) -> DistributionMatch | None:
    if python_import.provider is not None:
        name, _, version = python_import.provider.partition("==")
        return distribution(name, version, catalogue)
    parts = python_import.module.split(".")
    for count in range(min(len(parts), _MOST_PARTS), 0, -1):
        name = distribution_name("-".join(parts[:count]))
        match = distribution(name, installed.get(name, ""), catalogue)
        if match is not None:
            return match
    return None


def find_system_backend(module: str, catalogue: Catalogue) -> DistributionMatch | None:
    """Return the backend whose system packages provide a module; None if no entry matches."""
    for owned in catalogue.modules.find(module.partition(".")[0]):
        return DistributionMatch(
            vendor=owned.vendor,
            backend=owned.backend,
            kind="native",
            weight="strong",
            toolkit=None,
            replace={},
            entry=owned.glob,
            confidence=owned.confidence,
        )
    return None


def runtimes(evidence: Sequence[Evidence]) -> frozenset[str]:
    """Return the backends with a runtime library in the tree, whichever distribution owns it."""
    return frozenset(
        item.backend
        for item in evidence
        if item.kind == "bundled" and item.role == "runtime" and item.weight == "strong"
    )


def carry_failures(
    verdicts: Sequence[Verdict], statements: Sequence[PythonImport]
) -> Iterator[Verdict]:
    """Yield the verdicts, with distributions broken that import a broken distribution."""
    reasons: dict[str, str] = {}
    broken = {
        item.owner
        for item in verdicts
        if item.failure is not None and item.failure.kind != "plugin"
    }
    unguarded = [
        statement
        for statement in statements
        if statement.how == "imported" and statement.provider is not None
    ]
    ahead = sorted(broken)
    for provider in ahead:  # grows while it is walked
        for python_import in unguarded:
            if python_import.provider == provider and python_import.owner not in broken:
                broken.add(python_import.owner)
                ahead.append(python_import.owner)
                name = provider.replace("==", " ")
                reasons[python_import.owner] = (
                    f"its import imports {name} ({python_import.path}:{python_import.line}), "
                    "which cannot be imported"
                )
    for verdict in verdicts:
        reason = reasons.get(verdict.owner)
        if reason is not None:
            verdict = replace(verdict, verdict="broken", reason=reason, by_others=True)
        yield verdict


# Reach of imports to each file of a tree, links followed.
#
# Facts have the reach of files that Python code names (`facts.inventory.model.Reach`). Files linked
# by these are loaded with them, and so on.


#: From imports that fail with the file to files without a known loader.
_REACHES: tuple[Reach, ...] = ("import", "guarded", "lazy", "unknown")


def reach(
    inventory: Inventory, needed: Iterable[Needed], hopeless: Collection[str] = ()
) -> Mapping[str, Reach]:
    """Reach of every binary, by path; none is `chosen` any more.

    Of several files that a run chooses from, all are needed when none of them can be loaded:
    because it is `hopeless`, or something is that it links. Else the import goes on with another.
    Extension modules of a distribution whose Python code says nothing of any of its files are
    taken to be imported.
    """
    described = {binary.owner for binary in inventory.binaries if binary.reach != "unknown"}
    result: dict[str, Reach] = {
        binary.path: "import"
        if binary.reach == "unknown" and binary.owner not in described and is_extension(binary.path)
        else binary.reach
        for binary in inventory.binaries
    }
    links: dict[str, list[str]] = {}
    for item in needed:
        for path in item.paths:
            links.setdefault(item.binary, []).append(path)
    groups: dict[tuple[str | None, str | None], list[str]] = {}
    for binary in inventory.binaries:
        if binary.reach == "chosen":
            groups.setdefault((binary.owner, binary.reached_from), []).append(binary.path)
    for paths in groups.values():
        lost = all(any(file in hopeless for file in closure([path], links)) for path in paths)
        result |= dict.fromkeys(paths, "import" if lost else "guarded")
    for level in _REACHES[:-1]:
        reached = [path for path, extent in result.items() if extent == level]
        for path in reached:  # grows while it is walked
            for further in links.get(path, ()):
                # A file that was not opened is there, and nothing is known of its own links.
                if further in result and _REACHES.index(result[further]) > _REACHES.index(level):
                    result[further] = level
                    reached.append(further)
    return result


def closure(starts: Iterable[str], links: Mapping[str, Iterable[str]]) -> Collection[str]:
    """Return files and all that they link, directly or not."""
    reached = dict.fromkeys(starts)
    ahead = list(reached)
    for file in ahead:  # grows while it is walked
        for further in links.get(file, ()):
            if further not in reached:
                reached[further] = None
                ahead.append(further)
    return reached


def hopeless(evidence: Iterable[Evidence], missing: Collection[tuple[str, str]]) -> frozenset[str]:
    """Files that link a library of the catalogue that is not in the tree."""
    return frozenset(
        item.path
        for item in evidence
        if item.kind == "needed" and item.weight == "strong" and (item.path, item.detail) in missing
    )


def is_extension(path: str) -> bool:
    """Return True if a file is a Python extension module, by its name (PEP 3149)."""
    name = path.rpartition("/")[2]
    if not name.endswith(".so"):
        return False
    return ".cpython-" in name or ".abi3." in name or not name.startswith("lib")
