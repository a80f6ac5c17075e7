"""The site-packages that a set of wheels would become, from the inventories of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from buildmatrix.inventory.model import Inventory, PythonImport, SharedPath, Stats
from buildmatrix.trees.wheel import Member


@dataclass(slots=True)
class MergedPaths:
    """What follows from the lists of files alone: the same however deep the wheels are read.

    For callers that merge the same wheels again; empty at first.
    """

    shared: tuple[SharedPath, ...] | None = None
    modules: Mapping[str, str] | None = None


def merge(
    parts: Sequence[Inventory],
    members: Sequence[Sequence[Member]] | None = None,
    paths: MergedPaths | None = None,
) -> Inventory:
    """All facts of `parts`, as if the wheels were installed side by side.

    `members`: the files of each part, in the same order. They show which path two wheels hold, with
    which bytes (CRC-32 and size), and who has a module that another one imports. Without them only
    paths that the inventories name can be compared, and their bytes cannot. `paths` keeps what they
    show for the next time.

    Of a path that two wheels hold, both binaries are in the result: an installer decides
    which one stays. How far an import gets to a library is what each wheel said by itself;
    from one distribution into another only `PythonImport` leads.
    """
    lists = members or [_named(part) for part in parts]
    owners = [_owner(part) for part in parts]
    paths = paths or MergedPaths()
    if paths.shared is None:
        paths.shared = tuple(_shared(owners, lists, checked=members is not None))
    if paths.modules is None and any(part.python_imports for part in parts):
        paths.modules = _modules(owners, lists)
    shared = [*_all(parts, "shared_paths"), *paths.shared]
    imports = (
        _provided(python_import, paths.modules or {})
        for python_import in _all(parts, "python_imports")
    )
    return Inventory(
        distributions=_sorted(parts, "distributions", "path"),
        binaries=_sorted(parts, "binaries", "path"),
        artefacts=_sorted(parts, "artefacts", "path"),
        containers=_sorted(parts, "containers", "path"),
        python_loads=_sorted(parts, "python_loads", "path", "line", "call"),
        python_imports=tuple(
            sorted(imports, key=lambda imported: (imported.path, imported.line, imported.module))
        ),
        unparsed=_sorted(parts, "unparsed", "path"),
        statements=_sorted(parts, "statements", "path"),
        links=_sorted(parts, "links", "path"),
        shared_paths=tuple(
            sorted(shared, key=lambda shared_path: (shared_path.path, shared_path.owners))
        ),
        closed=_sorted(parts, "closed", "path"),
        unread=_sorted(parts, "unread", "path", "why"),
        stats=Stats(
            files=sum(part.stats.files for part in parts),
            binaries=sum(part.stats.binaries for part in parts),
            bytes_total=sum(part.stats.bytes_total for part in parts),
            bytes_read=sum(part.stats.bytes_read for part in parts),
            seconds=round(sum(part.stats.seconds for part in parts), 3),
            cached=sum(part.stats.cached for part in parts),
        ),
    )


def _all(parts: Iterable[Inventory], field: str) -> Iterator[Any]:
    return chain.from_iterable(getattr(part, field) for part in parts)


def _sorted(parts: Iterable[Inventory], field: str, *keys: str) -> tuple[Any, ...]:
    """All entries of a field, in an order that does not depend on that of the parts."""
    return tuple(
        sorted(
            _all(parts, field),
            key=lambda fact: (
                *(getattr(fact, key) for key in keys),
                getattr(fact, "owner", "") or "",
            ),
        )
    )


def _owner(part: Inventory) -> str:
    return next(
        (distribution.owner for distribution in part.distributions),
        "",
    )


def _named(part: Inventory) -> list[Member]:
    """The files that an inventory names."""
    places = [
        *((binary.path, binary.size) for binary in part.loadable),
        *(
            (artefact.path, artefact.size)
            for artefact in part.artefacts
            if artefact.container is None
        ),
        *((file.path, file.size) for file in part.closed),
    ]
    return [Member(path, size, 0, 0) for path, size in places]


def _shared(
    owners: Sequence[str], lists: Sequence[Sequence[Member]], *, checked: bool
) -> Iterator[SharedPath]:
    """Paths of more than one wheel; all owners match where all have the same bytes."""
    # Few of some ten thousand paths are held twice: only for those more than a look-up is spent.
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


def _modules(owners: Sequence[str], lists: Sequence[Sequence[Member]]) -> Mapping[str, str]:
    """Dotted name of a module → the distribution that has it; the first of several."""
    modules: dict[str, str] = {}
    for owner, files in zip(owners, lists, strict=True):
        for member in files:
            folder, _, name = member.path.rpartition("/")
            stem, _, suffix = name.partition(".")
            if suffix == "py" or suffix.endswith("so"):
                dotted = folder if stem == "__init__" else f"{folder}/{stem}".lstrip("/")
                modules.setdefault(dotted.replace("/", "."), owner)
    return modules


def _provided(imported: PythonImport, modules: Mapping[str, str]) -> PythonImport:
    """The import with the distribution that has the module, or the package around it."""
    name = imported.module
    while imported.provider is None and name:
        if name in modules and modules[name] != imported.owner:
            return replace(imported, provider=modules[name])
        name = name.rpartition(".")[0]
    return imported
