"""The four views: by layer, by who installed it, by library, and by vendor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from buildmatrix.catalogue.leftovers import Parted
from buildmatrix.catalogue.match import PACKAGE_ROLE
from buildmatrix.commands.explore.files import Files, Holder, item, short
from buildmatrix.commands.explore.model import Item, ViewName
from buildmatrix.inventory.model import Inventory
from buildmatrix.reports.why.graph import Graph
from buildmatrix.rules.carried import HELD
from buildmatrix.text import printable

OTHER_FILES = "other files"


def all_views(parted: Parted, files: Files, graph: Graph) -> Mapping[ViewName, tuple[Item, ...]]:
    """Every view of one inventory. A file is one row, wherever it stands."""
    inventory = parted.installed
    return {
        "layers": _layers(inventory, files, graph),
        "distributions": _by_holder(files.rows, files, None, inventory),
        "libraries": tuple(files.rows.values()),
        "vendors": _vendors(files),
    }


def _by_holder(
    paths: Iterable[str], files: Files, layer: int | None, inventory: Inventory
) -> tuple[Item, ...]:
    """`paths` under those that hold them; of one layer, or of all for None."""
    groups: dict[Holder, list[Item]] = {}
    for path in paths:
        groups.setdefault(files.holders[path], []).append(files.rows[path])
    items = []
    origins = inventory.origins
    for each in files.distributions:
        holder = Holder("distribution", f"{each.name}=={each.version}")
        is_here = layer is None or origins.get(each.path) == layer
        if is_here or holder in groups:
            # The files without a row came with the metadata.
            rest = each.size - files.sizes.get(holder, 0) if is_here else 0
            items.append(_distribution(holder, groups.pop(holder, []), rest, files))
    for leftover in files.leftovers:
        if layer is None or leftover.layer == layer:
            children = groups.pop(Holder("leftover", leftover.path), [])
            name = leftover.title or "package files"
            items.append(
                item(
                    "leftover",
                    name,
                    leftover.size,
                    wasted=leftover.size,
                    vendors=_vendors_of(children),
                    note=leftover.path,
                    children=_with_rest(children, leftover.size, wasted=True),
                    key=leftover.path,
                )
            )
    for holder, children in groups.items():
        name = holder.key if holder.kind != "folder" else f"/{holder.key}"
        note = {"package": "system package", "folder": "of no package"}.get(holder.kind, "")
        items.append(_group(holder, name, note, children))
    return tuple(items)


def _distribution(holder: Holder, children: list[Item], rest: int, files: Files) -> Item:
    name, _, version = holder.key.partition("==")
    verdict = files.verdicts.get(holder.key)
    size = sum(child.size for child in children) + max(rest, 0)
    wasted = sum(child.wasted for child in children)
    # What belongs to another backend is wasted as a whole, its Python files too.
    is_useless = bool(children or rest > 0) and holder.key in files.useless
    return item(
        "distribution",
        f"{name} {version}",
        size,
        wasted=size if is_useless else min(wasted, size),
        vendors=_vendors_of(children) or files.declared.get(holder.key, ()),
        note=verdict.verdict if verdict is not None else "",
        children=_with_rest(children, size, wasted=is_useless),
        key=holder.key,
    )


def _group(holder: Holder, name: str, note: str, children: list[Item]) -> Item:
    return item(
        holder.kind,
        name,
        sum(child.size for child in children),
        wasted=sum(child.wasted for child in children),
        vendors=_vendors_of(children),
        note=note,
        children=children,
        key=holder.key,
    )


def _with_rest(children: list[Item], size: int, *, wasted: bool = False) -> list[Item]:
    """`children`, and a row for the bytes that none of them has."""
    rest = size - sum(child.size for child in children)
    if rest <= 0:
        return children
    return [*children, item("rest", OTHER_FILES, rest, wasted=rest if wasted else 0)]


def _vendors_of(items: Iterable[Item]) -> tuple[str, ...]:
    sizes: dict[str, int] = {}
    for each in items:
        for vendor in each.vendors:
            sizes[vendor] = sizes.get(vendor, 0) + each.size
    return tuple(sorted(sizes, key=lambda vendor: (-sizes[vendor], vendor)))


# Layers


def _layers(inventory: Inventory, files: Files, graph: Graph) -> tuple[Item, ...]:
    paths: list[list[str]] = [[] for _ in inventory.layers]
    for path in files.rows:
        index = inventory.origins.get(path)
        if index is not None and 0 <= index < len(paths):
            paths[index].append(path)
    items = []
    for number, layer in enumerate(inventory.layers):
        children = [*_by_holder(paths[number], files, number, inventory)]
        hidden = _hidden(inventory, number, layer.hidden)
        seen = sum(child.size for child in children)
        whole = max(layer.size, seen + layer.hidden)
        place = graph.places[number] if number < len(graph.places) else ""
        text = (
            " ".join(layer.instruction.split()) or "an instruction that the image does not record"
        )
        items.append(
            item(
                "layer",
                f"{number + 1} {text}",
                whole,
                wasted=layer.hidden + sum(child.wasted for child in children),
                vendors=_vendors_of(children),
                note=place,
                children=_with_rest([*children, *hidden], whole),
                key=str(number),
            )
        )
    return tuple(items)


def _hidden(inventory: Inventory, number: int, size: int) -> list[Item]:
    """What later layers deleted or replaced of a layer; small groups are added up."""
    items = [
        item(
            "replaced" if each.replaced else "deleted",
            short(each.path) or "/",
            each.size,
            wasted=each.size,
            note=f"{'replaced' if each.replaced else 'deleted'} by layer {each.by + 1}",
            key=str(at),
            search=f"{printable(each.path)} {' '.join(map(printable, each.names))}",
        )
        for at, each in enumerate(inventory.buried)
        if each.layer == number
    ]
    rest = size - sum(each.size for each in items)
    if rest > 0:
        note = "deleted or replaced by later layers"
        items.append(item("deleted", OTHER_FILES, rest, wasted=rest, note=note))
    return items


# Vendors


def _vendors(files: Files) -> tuple[Item, ...]:
    """What is a vendor's: whole files, and its device code inside of others."""
    order = {kind: number for number, kind in enumerate(HELD)}
    groups: dict[tuple[str, str], dict[str, dict[str, int]]] = {}
    homes: dict[tuple[str, str], str] = {}
    held = sorted(
        (
            entry
            for path in files.rows
            for entry in files.evidence.get(path, ())
            if entry.kind in order and entry.role != PACKAGE_ROLE
        ),
        key=lambda entry: order[entry.kind],
    )
    for entry in held:
        # A file that is the vendor's as a whole counts as that, not for the device code in it.
        role = homes.setdefault((entry.backend, entry.path), entry.role)
        sizes = groups.setdefault((entry.vendor, entry.backend), {}).setdefault(role, {})
        sizes.setdefault(entry.path, entry.size)
    items = []
    for (vendor, backend), roles in groups.items():
        is_foreign = backend in files.foreign
        children = [
            _role(vendor, backend, role, sizes, files, is_foreign=is_foreign)
            for role, sizes in roles.items()
        ]
        size = sum(child.size for child in children)
        items.append(
            item(
                "vendor",
                f"{vendor} {backend}" if vendor != backend else vendor,
                size,
                wasted=size if is_foreign else 0,
                vendors=(vendor,),
                children=children,
                key=backend,
            )
        )
    return tuple(sorted(items, key=lambda each: (-each.size, each.name)))


def _role(
    vendor: str,
    backend: str,
    role: str,
    sizes: Mapping[str, int],
    files: Files,
    *,
    is_foreign: bool,
) -> Item:
    children = [
        item(
            "file",
            files.rows[path].name,
            size,
            wasted=size if is_foreign else 0,
            vendors=(vendor,),
            note=files.rows[path].note,
            key=path,
            search=files.rows[path].search,
        )
        for path, size in sizes.items()
    ]
    size = sum(child.size for child in children)
    return item(
        "role",
        role,
        size,
        wasted=size if is_foreign else 0,
        vendors=(vendor,),
        children=children,
        key=backend,
    )
