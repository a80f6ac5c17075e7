"""How far an import of Python packages gets to each file of a tree, links followed.

The facts say it for the files that Python code names (`inventory.model.Reach`). What those link is
loaded with them, and so on down.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from buildmatrix.catalogue.model import Evidence
from buildmatrix.inventory.model import Inventory
from buildmatrix.loader.resolution import Needed
from buildmatrix.python_imports.reach import Reach

#: From imports that fail with the file to files without a known loader.
_ORDER: tuple[Reach, ...] = ("import", "guarded", "lazy", "unknown")


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
    for path in _chosen(inventory, links, hopeless):
        result[path] = "import"
    for path, extent in result.items():
        if extent == "chosen":
            result[path] = "guarded"
    for level in _ORDER[:-1]:
        reached = [path for path, extent in result.items() if extent == level]
        for path in reached:  # grows while it is walked
            for further in links.get(path, ()):
                # A file that was not opened is there, and nothing is known of its own links.
                if further in result and _ORDER.index(result[further]) > _ORDER.index(level):
                    result[further] = level
                    reached.append(further)
    return result


def _chosen(
    inventory: Inventory, links: Mapping[str, list[str]], hopeless: Collection[str]
) -> Iterator[str]:
    """Files that a run chooses from where none of them can be loaded."""
    groups: dict[tuple[str | None, str | None], list[str]] = {}
    for binary in inventory.binaries:
        if binary.reach == "chosen":
            groups.setdefault((binary.owner, binary.reached_from), []).append(binary.path)
    for paths in groups.values():
        if all(_is_lost(path, links, hopeless) for path in paths):
            yield from paths


def _is_lost(path: str, links: Mapping[str, list[str]], hopeless: Collection[str]) -> bool:
    ahead, seen = [path], {path}
    for file in ahead:  # grows while it is walked
        if file in hopeless:
            return True
        for further in links.get(file, ()):
            if further not in seen:
                seen.add(further)
                ahead.append(further)
    return False


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
