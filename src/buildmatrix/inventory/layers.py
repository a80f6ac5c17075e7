"""Layer of each fact of an image, and files in its layers that no container sees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from heapq import nlargest

from buildmatrix.inventory.model import Inventory, Layer, ShadowedFiles
from buildmatrix.inventory.names import readable
from buildmatrix.trees.archive_layers import HiddenFile, LayeredTree

#: Listed groups of hidden files, and the least size of a group.
MOST_SHADOWED = 500
SMALLEST_SHADOWED = 64 << 10
#: Names listed per group.
MOST_NAMES = 12
#: Folder components that hidden files outside of any site-packages are grouped by.
_DEPTH = 3
#: Folders that name a distribution with its version; listed in any size.
_METADATA = (".dist-info", ".egg-info")
_SITES = frozenset({"site-packages", "dist-packages"})


def add_layers(
    inventory: Inventory,
    tree: LayeredTree,
    digests: Iterable[str],
    instructions: Iterable[str],
) -> Inventory:
    """Add to `inventory` the layers of its image.

    `digests` and `instructions` have one text for each layer of `tree`, empty if unknown.
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
        origins=dict(sorted(_find_origins(inventory, tree))),
        buried=_group_shadowed(hidden),
    )


def layered_paths(inventory: Inventory) -> Iterator[str]:
    """Yield the paths of facts that get a layer in an inventory."""
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


def _find_origins(inventory: Inventory, tree: LayeredTree) -> Iterator[tuple[str, int]]:
    for path in layered_paths(inventory):
        layer = tree.origin(path)
        if layer is not None:
            yield path, layer
    for path, container in _nested_paths(inventory):
        layer = tree.origin(container)
        if layer is not None:
            yield path, layer


def _nested_paths(inventory: Inventory) -> Iterator[tuple[str, str]]:
    """Yield the paths of nested files, with their containers."""
    for binary in inventory.binaries:
        if binary.container is not None:
            yield binary.path, binary.container
    for artefact in inventory.artefacts:
        if artefact.container is not None:
            yield artefact.path, artefact.container


@dataclass(slots=True)
class _ShadowedGroup:
    files: int = 0
    size: int = 0
    names: list[tuple[int, str]] = field(default_factory=list)


def _group_shadowed(hidden: Iterable[HiddenFile]) -> tuple[ShadowedFiles, ...]:
    """Group hidden files by package or folder, layers, and manner, the largest first."""
    groups: dict[tuple[str, int, int, bool], _ShadowedGroup] = {}
    for item in hidden:
        key = _group_path(item.path), item.layer, item.by, item.replaced
        group = groups.setdefault(key, _ShadowedGroup())
        group.files += 1
        group.size += item.size
        name = item.path.rpartition("/")[2]
        if ".so" in name or "." not in name:
            group.names.append((item.size, name))
            if len(group.names) > 20 * MOST_NAMES:
                group.names = nlargest(MOST_NAMES, group.names)
    buried_groups = [
        ShadowedFiles(
            readable(path),
            group.files,
            group.size,
            layer,
            by,
            replaced,
            tuple(readable(name) for _, name in nlargest(MOST_NAMES, group.names)),
        )
        for (path, layer, by, replaced), group in groups.items()
        if group.size >= SMALLEST_SHADOWED or path.endswith(_METADATA)
    ]
    buried_groups.sort(
        key=lambda buried: (-buried.size, buried.path, buried.layer, buried.by, buried.replaced)
    )
    return tuple(buried_groups[:MOST_SHADOWED])


def _group_path(path: str) -> str:
    """Return the package folder of a file in site-packages, else the first folders of its path."""
    parts = path.split("/")
    for at, part in enumerate(parts[:-1]):
        if part in _SITES:
            return "/".join(parts[: at + 2])
    return "/".join(parts[:-1][:_DEPTH])
