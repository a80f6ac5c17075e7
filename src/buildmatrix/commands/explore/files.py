"""Files of an inventory as rows, with owners and wasted bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.catalogue.leftovers import Leftover, SplitInventory
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.explore.model import FileFact, Item, ItemKind, name_key
from buildmatrix.inventory.model import Distribution, Inventory
from buildmatrix.rules.evidence import HELD, is_foreign, total
from buildmatrix.rules.model import Verdict, keep_worst
from buildmatrix.text import printable, shown

#: Depth of the folder names of files that nothing installed.
_DEPTH = 2
_SITES = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Holder:
    """Owner of a file: a distribution, a system package, a leftover, or just its folder."""

    kind: ItemKind
    #: `name==version`, or a path.
    key: str


@dataclass(frozen=True, slots=True)
class Files:
    """All files with a row, and their holders."""

    #: By path.
    facts: Mapping[str, FileFact]
    rows: Mapping[str, Item]
    holders: Mapping[str, Holder]
    evidence: Mapping[str, tuple[Evidence, ...]]
    distributions: tuple[Distribution, ...]
    #: By `name==version`.
    verdicts: Mapping[str, Verdict]
    leftovers: tuple[Leftover, ...]
    #: Bytes of each holder's files, and vendors declared by `name==version`.
    sizes: Mapping[Holder, int]
    declared: Mapping[str, tuple[str, ...]]
    #: Distributions (`name==version`) that entirely belong to another backend.
    useless: frozenset[str]
    #: Backends that are foreign here.
    foreign: frozenset[str]


def make_item(
    kind: ItemKind,
    name: str,
    size: int,
    *,
    wasted: int = 0,
    vendors: Iterable[str] = (),
    note: str = "",
    children: Iterable[Item] = (),
    key: str = "",
    search: str = "",
) -> Item:
    """Make a row with texts from untrusted sources, made safe to display.

    `search` is the text for filters, if it is more than `name` and `note`.
    """
    name, note = printable(shown(name)), printable(shown(note))
    search = (search or f"{name} {note}").casefold()
    below = tuple(sorted(children, key=name_key))
    return Item(kind, name, size, wasted, tuple(vendors), note, below, key, search)


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
