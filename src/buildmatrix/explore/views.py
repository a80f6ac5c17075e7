"""The four views: by layer, by installer, by library, and by vendor, down to files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

from buildmatrix.base.data import replace
from buildmatrix.base.text import printable, shown
from buildmatrix.catalogue.leftovers import SplitInventory, split_leftovers
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.lookup import unknown_backend
from buildmatrix.catalogue.match import PACKAGE_ROLE
from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.why import make_graph
from buildmatrix.explore.model import (
    Exploration,
    FileFact,
    Files,
    Holder,
    Item,
    ItemKind,
    ViewName,
    name_key,
)
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.judge.evidence import HELD, is_foreign, total
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.locks import wheels
from buildmatrix.judge.model import Finding, Verdict, keep_worst
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import Spec, Target, bare_spec, bare_target
from buildmatrix.reports import why
from buildmatrix.reports.why import Graph
from buildmatrix.sources.model import Facts

#: Depth of the folder names of files that nothing installed.
_DEPTH = 2
_SITES = ("site-packages", "dist-packages")


def make_item(
    kind: ItemKind,
    name: str,
    size: int | None = None,
    *,
    wasted: int | None = None,
    vendors: Iterable[str] = (),
    note: str = "",
    children: Iterable[Item] = (),
    key: str = "",
    search: str = "",
) -> Item:
    """Make a row with texts from untrusted sources, made safe to display.

    Bytes and vendors that are not given are those of `children`. `search` is the text for filters,
    if it is more than `name` and `note`.
    """
    below = tuple(sorted(children, key=name_key))
    name, note = printable(shown(name)), printable(shown(note))
    return Item(
        kind,
        name,
        sum(child.size for child in below) if size is None else size,
        sum(child.wasted for child in below) if wasted is None else wasted,
        tuple(vendors) or _sort_vendors(below),
        note,
        below,
        key,
        (search or f"{name} {note}").casefold(),
    )


def _sort_vendors(items: Iterable[Item]) -> tuple[str, ...]:
    sizes: dict[str, int] = {}
    for each in items:
        for vendor in each.vendors:
            sizes[vendor] = sizes.get(vendor, 0) + each.size
    return tuple(sorted(sizes, key=lambda vendor: (-sizes[vendor], vendor)))


def collect_files(
    parted: SplitInventory,
    evidence: Sequence[Evidence],
    verdicts: Sequence[Verdict],
    backend: str | None,
    catalogue: Catalogue,
) -> Files:
    """Return the files of an inventory, judged for `backend`; without one, nothing is wasted."""
    inventory = parted.whole
    facts = {fact.path: fact for fact in _list_facts(inventory)}
    by_path: dict[str, list[Evidence]] = {}
    for entry in evidence:
        by_path.setdefault(entry.path, []).append(entry)
    worst: dict[str, Verdict] = {}
    for verdict in verdicts:
        keep_worst(worst, verdict.owner, verdict)
    sizes = {f"{each.name}=={each.version}": each.size for each in parted.installed.distributions}
    useless = frozenset(
        owner
        for owner, verdict in worst.items()
        if verdict.foreign_bytes and verdict.foreign_bytes >= sizes.get(owner, 0)
    )
    holders = {path: _find_holder(fact, parted, inventory) for path, fact in facts.items()}
    made = [
        _make_row(fact, holders[path], by_path.get(path, ()), useless, backend, catalogue)
        for path, fact in facts.items()
    ]
    # Sorted once for all views, where sorting sorted rows is cheap.
    rows = {row.key: row for row in sorted(made, key=name_key)}
    held: dict[Holder, int] = {}
    for path, holder in holders.items():
        held[holder] = held.get(holder, 0) + facts[path].size
    declared: dict[str, tuple[str, ...]] = {}
    for entry in evidence:
        if entry.kind == "declared" and entry.distribution is not None:
            vendors = declared.get(entry.distribution, ())
            if entry.vendor not in vendors:
                declared[entry.distribution] = (*vendors, entry.vendor)
    foreign = frozenset(
        entry.backend
        for entry in evidence
        if backend is not None and is_foreign(entry, backend, catalogue)
    )
    return Files(
        facts,
        rows,
        holders,
        {path: tuple(items) for path, items in by_path.items()},
        parted.installed.distributions,
        worst,
        parted.leftovers,
        held,
        declared,
        useless,
        foreign,
    )


def _list_facts(inventory: Inventory) -> Iterator[FileFact]:
    """Yield the files, unopened ones first: later facts replace those known by name alone."""
    yield from (file for file in inventory.closed if not file.path.endswith(".py"))
    opened = {binary.container for binary in inventory.binaries}
    opened.update(artefact.container for artefact in inventory.artefacts)
    # The bytes of an archive belong to the files in it, if some of these have rows.
    yield from (file for file in inventory.containers if file.path not in opened)
    yield from inventory.artefacts
    yield from inventory.binaries


def _find_holder(fact: FileFact, parted: SplitInventory, inventory: Inventory) -> Holder:
    if fact.owner is not None:
        return Holder("distribution", fact.owner)
    for leftover in parted.leftovers:
        if fact.path.startswith(f"{leftover.path}/"):
            return Holder("leftover", leftover.path)
    package = inventory.packaged.get(fact.path)
    if package is not None:
        return Holder("package", package)
    return Holder("folder", "/".join(fact.path.split("/")[:-1][:_DEPTH]))


def _make_row(
    fact: FileFact,
    holder: Holder,
    evidence: Sequence[Evidence],
    useless: frozenset[str],
    backend: str | None,
    catalogue: Catalogue,
) -> Item:
    held = [entry for entry in evidence if entry.kind in HELD]
    wasted = 0
    if holder.kind == "leftover" or (holder.kind == "distribution" and holder.key in useless):
        wasted = fact.size if backend is not None else 0
    elif backend is not None:
        wasted = total(
            entry
            for entry in held
            if entry.weight == "strong" and is_foreign(entry, backend, catalogue)
        )
    folder, _, name = fact.path.rpartition("/")
    ordered = sorted(held, key=lambda entry: -entry.size)
    vendors = dict.fromkeys(entry.vendor for entry in ordered)
    return make_item(
        "file",
        name,
        fact.size,
        wasted=min(wasted, fact.size),
        vendors=vendors,
        note=shorten_folder(folder),
        key=fact.path,
        search=printable(fact.path),
    )


def shorten_folder(folder: str) -> str:
    """Return `folder` without the part before and including site-packages."""
    for site in _SITES:
        before, found, behind = f"/{folder}/".rpartition(f"/{site}/")
        if found and before:
            return f"…/{behind.rstrip('/')}" if behind else f"…/{site}"
    return folder


OTHER_FILES = "other files"


def make_views(
    parted: SplitInventory, files: Files, graph: Graph
) -> Mapping[ViewName, tuple[Item, ...]]:
    """Return every view of one inventory. A file is the same row in all views."""
    inventory = parted.installed
    return {
        "layers": _make_layers(inventory, files, graph),
        "distributions": _group_by_holder(files.rows, files, None, inventory),
        "libraries": tuple(files.rows.values()),
        "vendors": _make_vendors(files),
    }


def _group_by_holder(
    paths: Iterable[str], files: Files, layer: int | None, inventory: Inventory
) -> tuple[Item, ...]:
    """Group `paths` by their holders; of one layer, or of all for None."""
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
            items.append(_make_distribution(holder, groups.pop(holder, []), rest, files))
    for leftover in files.leftovers:
        if layer is None or leftover.layer == layer:
            children = groups.pop(Holder("leftover", leftover.path), [])
            items.append(
                make_item(
                    "leftover",
                    leftover.title or "package files",
                    leftover.size,
                    wasted=leftover.size,
                    note=leftover.path,
                    children=_add_rest(children, leftover.size, wasted=True),
                    key=leftover.path,
                )
            )
    for holder, children in groups.items():
        name = holder.key if holder.kind != "folder" else f"/{holder.key}"
        note = {"package": "system package", "folder": "of no package"}.get(holder.kind, "")
        items.append(make_item(holder.kind, name, note=note, children=children, key=holder.key))
    return tuple(items)


def _make_distribution(holder: Holder, children: list[Item], rest: int, files: Files) -> Item:
    name, _, version = holder.key.partition("==")
    verdict = files.verdicts.get(holder.key)
    size = sum(child.size for child in children) + max(rest, 0)
    # A distribution of another backend is wasted as a whole, including Python files.
    below = _add_rest(children, size, wasted=holder.key in files.useless)
    return make_item(
        "distribution",
        f"{name} {version}",
        vendors=_sort_vendors(children) or files.declared.get(holder.key, ()),
        note=verdict.verdict if verdict is not None else "",
        children=below,
        key=holder.key,
    )


def _add_rest(children: list[Item], size: int, *, wasted: bool = False) -> list[Item]:
    """Return `children`, with a row for the bytes of none of them."""
    rest = size - sum(child.size for child in children)
    if rest <= 0:
        return children
    return [*children, make_item("rest", OTHER_FILES, rest, wasted=rest if wasted else 0)]


# Layers


def _make_layers(inventory: Inventory, files: Files, graph: Graph) -> tuple[Item, ...]:
    paths: list[list[str]] = [[] for _ in inventory.layers]
    for path in files.rows:
        index = inventory.origins.get(path)
        if index is not None and 0 <= index < len(paths):
            paths[index].append(path)
    items = []
    for number, layer in enumerate(inventory.layers):
        children = [*_group_by_holder(paths[number], files, number, inventory)]
        hidden = _make_hidden(inventory, number, layer.hidden)
        seen = sum(child.size for child in children)
        whole = max(layer.size, seen + layer.hidden)
        items.append(
            make_item(
                "layer",
                f"{number + 1} {why.made_by(layer.instruction)}",
                whole,
                wasted=layer.hidden + sum(child.wasted for child in children),
                note=why.place(graph, number),
                children=_add_rest([*children, *hidden], whole),
                key=str(number),
            )
        )
    return tuple(items)


def _make_hidden(inventory: Inventory, number: int, size: int) -> list[Item]:
    """Return the files of a layer that later layers hide; small groups are added up."""
    items = []
    for at, each in enumerate(inventory.buried):
        kind: ItemKind = "replaced" if each.replaced else "deleted"
        if each.layer == number:
            items.append(
                make_item(
                    kind,
                    shorten_folder(each.path) or "/",
                    each.size,
                    wasted=each.size,
                    note=f"{kind} by layer {each.by + 1}",
                    key=str(at),
                    search=" ".join(map(printable, (each.path, *each.names))),
                )
            )
    rest = size - sum(each.size for each in items)
    if rest > 0:
        note = "deleted or replaced by later layers"
        items.append(make_item("deleted", OTHER_FILES, rest, wasted=rest, note=note))
    return items


# Vendors


def _make_vendors(files: Files) -> tuple[Item, ...]:
    """Return the vendors' files, and their device code inside other files."""
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
        # A file that belongs to the vendor as a whole counts as that, not for its device code.
        role = homes.setdefault((entry.backend, entry.path), entry.role)
        sizes = groups.setdefault((entry.vendor, entry.backend), {}).setdefault(role, {})
        sizes.setdefault(entry.path, entry.size)
    items = (_make_vendor(*names, roles, files) for names, roles in groups.items())
    return tuple(sorted(items, key=lambda each: (-each.size, each.name)))


def _make_vendor(
    vendor: str, backend: str, roles: Mapping[str, Mapping[str, int]], files: Files
) -> Item:
    is_foreign = backend in files.foreign
    children = [
        make_item(
            "role",
            role,
            vendors=(vendor,),
            children=(
                replace(
                    files.rows[path], size=size, wasted=size if is_foreign else 0, vendors=(vendor,)
                )
                for path, size in sizes.items()
            ),
            key=backend,
        )
        for role, sizes in roles.items()
    ]
    name = f"{vendor} {backend}" if vendor != backend else vendor
    return make_item("vendor", name, vendors=(vendor,), children=children, key=backend)


Judgement = tuple[tuple[Finding, ...], tuple[Verdict, ...]]


def make_exploration(
    facts: Facts,
    *,
    backend: str | None = None,
    runtime: str = "any",
    today: date,
    declared: tuple[Spec, Target] | None = None,
    of_wheels: bool = False,
    data_files: Sequence[Path] = (),
) -> Exploration:
    """Return the data that the screen shows of a source.

    Without `backend`, that of the source is used; if it has none, nothing counts as foreign.
    `declared` is a target of a specification to judge it as instead. `of_wheels`: the facts are
    those of wheels in a lock, and not of an image. Raises `UsageError` for a backend that the
    catalogue does not know.
    """
    if declared is None and facts.target is not None and backend is None:
        declared = facts.target[1], facts.target[0]
    chosen = declared[1].backend if declared is not None else backend or facts.backend
    files = tuple(data_files) or facts.catalogue
    if chosen is not None and declared is None:
        bare = bare_target(facts.label, chosen, runtime)
        paths = tuple(str(path.absolute()) for path in files)
        declared = replace(bare_spec(bare), catalogue=paths), bare
    findings: tuple[Finding, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    if declared is not None:
        lock = facts.lock if of_wheels else None
        findings, verdicts = _judge(facts.inventory, lock, *declared, today)
    catalogue = load(facts.catalogue or files)
    parted = split_leftovers(facts.inventory, catalogue)
    source = make_graph(facts)
    # Both are computed on first use, which would delay the first file under the cursor.
    _ = source.graph.out, source.graph.into
    known = collect_files(parted, source.evidence, verdicts, chosen, catalogue)
    views = make_views(parted, known, source.graph)
    return Exploration(
        label=printable(shown(facts.label)),
        backend=chosen,
        size=sum(item.size for item in views["layers"]) or facts.inventory.stats.bytes_total,
        wasted=sum(item.wasted for item in views["layers"] or views["distributions"]),
        views=views,
        vendors=tuple(
            dict.fromkeys(vendor for item in views["vendors"] for vendor in item.vendors)
        ),
        inventory=facts.inventory,
        source=source,
        files=known,
        findings=findings,
    )


def _judge(
    inventory: Inventory, lock: Lock | None, spec: Spec, target: Target, today: date
) -> Judgement:
    """Return findings and verdicts: those of a scan, or with a `lock` of an audit of its wheels."""
    judge = Judge(spec, "never", today)
    if target.backend not in judge.backends:
        raise unknown_backend(target.backend, judge.backends)
    if lock is None:
        judgement = judge.image(target, inventory, None)
        return judgement.findings, judgement.verdicts
    items = judge.evidence(inventory)
    findings, verdicts = judge.wheels(
        wheels(target, inventory, items, lock, judge.catalogue, judge.policy, downloads={})
    )
    return judge.settled(findings), verdicts
