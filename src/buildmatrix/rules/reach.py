"""How far an import of Python packages gets to each file of a tree, links followed.

The facts say it for the files that Python code names (`inventory.model.Reach`). What those link is
loaded with them, and so on down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from buildmatrix.inventory.loader import Needed
from buildmatrix.inventory.model import Binary, Inventory, Reach

#: From what fails with its file to what nobody is known to load.
_ORDER: tuple[Reach, ...] = ("import", "guarded", "lazy", "unknown")


def reach(inventory: Inventory, needed: Iterable[Needed]) -> Mapping[str, Reach]:
    """Reach of every binary, by path.

    Extension modules of a distribution whose Python code says nothing of any of its files are
    taken to be imported.
    """
    told = {binary.owner for binary in inventory.binaries if binary.reach != "unknown"}
    result: dict[str, Reach] = {
        binary.path: "import"
        if binary.reach == "unknown" and binary.owner not in told and is_extension(binary)
        else binary.reach
        for binary in inventory.binaries
    }
    links: dict[str, list[str]] = {}
    for one in needed:
        for path in (one.found,) if one.found is not None else one.anywhere:
            links.setdefault(one.binary, []).append(path)
    for level in _ORDER[:-1]:
        reached = [path for path, known in result.items() if known == level]
        for path in reached:  # grows while it is walked
            for further in links.get(path, ()):
                # A file that was not opened is there, and nothing is known of its own links.
                if further in result and _ORDER.index(result[further]) > _ORDER.index(level):
                    result[further] = level
                    reached.append(further)
    return result


def is_extension(binary: Binary) -> bool:
    """Whether a file is a Python extension module, by its name (PEP 3149)."""
    name = binary.path.rpartition("/")[2]
    if not name.endswith(".so"):
        return False
    return ".cpython-" in name or ".abi3." in name or not name.startswith("lib")
