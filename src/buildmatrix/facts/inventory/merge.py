"""Site-packages that a set of wheels would become, from their inventories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

from buildmatrix.facts.inventory.model import (
    Artefact,
    Binary,
    ClosedFile,
    Inventory,
    PythonImport,
    SharedPath,
    Stats,
)
from buildmatrix.facts.trees.wheel import Member


@dataclass(slots=True)
class MergedPaths:
    """Results from the file lists alone, the same for any depth of reading.

    For callers that merge the same wheels again; empty at first.
    """

    shared: tuple[SharedPath, ...] | None = None
    modules: Mapping[str, str] | None = None
    #: What dotted names begin with that some wheel has.
    tops: frozenset[str] = frozenset()


def merge(
    parts: Sequence[Inventory],
    members: Sequence[Sequence[Member]] | None = None,
    paths: MergedPaths | None = None,
) -> Inventory:
    """Merge the facts of `parts`, as if the wheels were installed together.

    `members` are the files of each part, in the same order. They show which paths two wheels share,
    with which bytes (CRC-32 and size), and which wheel has a module that another one imports.
    Without them, only paths in the inventories can be compared, and their bytes cannot. `paths`
    keeps these results for the next call.

    For a path in two wheels, the result has both binaries: the installer decides which one stays.
    The reach of a library is that within its wheel; only `PythonImport` leads from one distribution
    to another.
    """
    lists = members or [_listed_files(part) for part in parts]
    owners = [next((item.owner for item in part.distributions), "") for part in parts]
    paths = paths or MergedPaths()
    if paths.shared is None:
        paths.shared = tuple(_find_shared_paths(owners, lists, checked=members is not None))
    if paths.modules is None and any(part.python_imports for part in parts):
        paths.modules = _map_modules(owners, lists)
        paths.tops = frozenset(name.partition(".")[0] for name in paths.modules)
    names = (item.name for item in fields(Stats))
    totals = Stats(**{name: sum(getattr(part.stats, name) for part in parts) for name in names})
    shared = [*_chain_field(parts, "shared_paths"), *paths.shared]
    imports = (
        provided
        for python_import in _chain_field(parts, "python_imports")
        if (provided := _add_provider(python_import, paths)) is not None
    )
    return Inventory(
        distributions=_merge_field(parts, "distributions", "path"),
        binaries=_merge_field(parts, "binaries", "path"),
        artefacts=_merge_field(parts, "artefacts", "path"),
        containers=_merge_field(parts, "containers", "path"),
        python_loads=_merge_field(parts, "python_loads", "path", "line", "call"),
        python_imports=tuple(
            sorted(imports, key=lambda imported: (imported.path, imported.line, imported.module))
        ),
        unparsed=_merge_field(parts, "unparsed", "path"),
        statements=_merge_field(parts, "statements", "path"),
        links=_merge_field(parts, "links", "path"),
        shared_paths=tuple(
            sorted(shared, key=lambda shared_path: (shared_path.path, shared_path.owners))
        ),
        closed=_merge_field(parts, "closed", "path"),
        unread=_merge_field(parts, "unread", "path", "why"),
        stats=replace(totals, seconds=round(totals.seconds, 3)),
    )


def _chain_field(parts: Iterable[Inventory], field: str) -> Iterator[Any]:
    return chain.from_iterable(getattr(part, field) for part in parts)


def _merge_field(parts: Iterable[Inventory], field: str, *keys: str) -> tuple[Any, ...]:
    """Return all entries of a field, in an order independent of that of the parts."""

    def place(fact: object) -> tuple[object, ...]:
        return *(getattr(fact, key) for key in keys), getattr(fact, "owner", "") or ""

    return tuple(sorted(_chain_field(parts, field), key=place))


def _listed_files(part: Inventory) -> list[Member]:
    """Return the files named in an inventory."""
    artefacts = (artefact for artefact in part.artefacts if artefact.container is None)
    files: Iterable[Binary | Artefact | ClosedFile]
    files = chain(part.loadable, artefacts, part.closed)
    return [Member(file.path, file.size, 0, 0) for file in files]


def _find_shared_paths(
    owners: Sequence[str], lists: Sequence[Sequence[Member]], *, checked: bool
) -> Iterator[SharedPath]:
    """Yield paths of more than one wheel; all owners match if all have the same bytes."""
    # Only few of about ten thousand paths are in two wheels, so a single look-up suffices for most.
    first: dict[str, tuple[str, Member]] = {}
    holders: dict[str, list[tuple[str, Member]]] = {}
    for owner, files in zip(owners, lists, strict=True):
        for member in files:
            holder = owner, member
            if first.setdefault(member.path, holder) is not holder:
                holders.setdefault(member.path, [first[member.path]]).append(holder)
    for path, claimants in holders.items():
        names = tuple(sorted({owner for owner, _ in claimants}))
        if len(names) < 2:
            continue
        is_same = len({(member.size, member.crc) for _, member in claimants}) == 1
        yield SharedPath(path, names, (names if is_same else ()) if checked else None)


def _map_modules(owners: Sequence[str], lists: Sequence[Sequence[Member]]) -> Mapping[str, str]:
    """Map dotted module names to their distribution; the first of several."""
    modules: dict[str, str] = {}
    for owner, files in zip(owners, lists, strict=True):
        for member in files:
            folder, _, name = member.path.rpartition("/")
            stem, _, suffix = name.partition(".")
            if suffix == "py" or suffix.endswith("so"):
                dotted = folder if stem == "__init__" else f"{folder}/{stem}".lstrip("/")
                modules.setdefault(dotted.replace("/", "."), owner)
    return modules


def _add_provider(imported: PythonImport, paths: MergedPaths) -> PythonImport | None:
    """Return the import with the distribution of the module, or of its package.

    None for a missing module in a namespace that another wheel has.
    """
    modules = paths.modules or {}
    is_missing = imported.how == "missing"
    name = imported.module
    while imported.provider is None and name:
        if name in modules and modules[name] != imported.owner:
            how = "imported" if is_missing else imported.how
            return replace(imported, provider=modules[name], how=how)
        name = name.rpartition(".")[0]
    if is_missing and imported.provider is None and imported.module.partition(".")[0] in paths.tops:
        return None
    return imported
