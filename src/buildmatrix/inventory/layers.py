"""Which layer of an image brought what, and what its layers hold that no container sees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from heapq import nlargest

from buildmatrix.inventory.model import Buried, Inventory, Layer
from buildmatrix.inventory.names import readable
from buildmatrix.trees.archive_layers import HiddenFile, LayeredTree

#: Groups of hidden files that are listed, and bytes that such a group has at least.
MOST_BURIED = 500
SMALLEST_BURIED = 64 << 10
#: Names that are listed of one group.
MOST_NAMES = 12
#: Components of the folder that hidden files outside of any site-packages are grouped by.
_DEPTH = 3
#: Folders that name a distribution with its version: listed whatever their size.
_METADATA = (".dist-info", ".egg-info")
_SITES = frozenset({"site-packages", "dist-packages"})


def with_layers(
    inventory: Inventory,
    tree: LayeredTree,
    digests: Iterable[str],
    instructions: Iterable[str],
) -> Inventory:
    """`inventory` with the layers of the image that it was read from.

    `digests` and `instructions` have one text for each layer of `tree`, empty where unknown.
    """
    hidden = list(tree.hidden_files())
    lost = [0] * len(tree.sizes)
    for item in hidden:
        lost[item.layer] += item.size
    return replace(
        inventory,
        layers=tuple(
            Layer(digest, readable(text), size, hidden_size)
            for digest, text, size, hidden_size in zip(
                digests, instructions, tree.sizes, lost, strict=True
            )
        ),
        origins=dict(sorted(_origins(inventory, tree))),
        buried=_buried(hidden),
    )


def paths(inventory: Inventory) -> Iterator[str]:
    """Paths of the facts that an inventory gives a layer for."""
    for facts in (
        inventory.binaries,
        inventory.artefacts,
        inventory.containers,
        inventory.folders,
        inventory.links,
        inventory.distributions,
        inventory.python_loads,
    ):
        for fact in facts:
            yield fact.path


def _origins(inventory: Inventory, tree: LayeredTree) -> Iterator[tuple[str, int]]:
    for path in paths(inventory):
        layer = tree.origin(path)
        if layer is not None:
            yield path, layer
    for path, container in _inside(inventory):
        layer = tree.origin(container)
        if layer is not None:
            yield path, layer


def _inside(inventory: Inventory) -> Iterator[tuple[str, str]]:
    """Paths of what lies in containers, and of those."""
    for binary in inventory.binaries:
        if binary.container is not None:
            yield binary.path, binary.container
    for artefact in inventory.artefacts:
        if artefact.container is not None:
            yield artefact.path, artefact.container


@dataclass(slots=True)
class _BuriedGroup:
    files: int = 0
    size: int = 0
    names: list[tuple[int, str]] = field(default_factory=list)


def _buried(hidden: Iterable[HiddenFile]) -> tuple[Buried, ...]:
    """The hidden files by package or folder, layers, and manner; the largest first."""
    groups: dict[tuple[str, int, int, bool], _BuriedGroup] = {}
    for item in hidden:
        key = _folder(item.path), item.layer, item.by, item.replaced
        group = groups.setdefault(key, _BuriedGroup())
        group.files += 1
        group.size += item.size
        name = item.path.rpartition("/")[2]
        if ".so" in name or "." not in name:
            group.names.append((item.size, name))
            if len(group.names) > 20 * MOST_NAMES:
                group.names = nlargest(MOST_NAMES, group.names)
    buried_groups = [
        Buried(
            readable(path),
            group.files,
            group.size,
            layer,
            by,
            replaced,
            tuple(readable(name) for _, name in nlargest(MOST_NAMES, group.names)),
        )
        for (path, layer, by, replaced), group in groups.items()
        if group.size >= SMALLEST_BURIED or path.endswith(_METADATA)
    ]
    buried_groups.sort(
        key=lambda buried: (-buried.size, buried.path, buried.layer, buried.by, buried.replaced)
    )
    return tuple(buried_groups[:MOST_BURIED])


def _folder(path: str) -> str:
    """The package in a site-packages that a file belongs to, else the first folders of its path."""
    parts = path.split("/")
    for at, part in enumerate(parts[:-1]):
        if part in _SITES:
            return "/".join(parts[: at + 2])
    return "/".join(parts[:-1][:_DEPTH])
