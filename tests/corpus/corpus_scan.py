"""What buildmatrix says about a wheel, in the sets of `corpus_truth`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from corpus_truth import BACKENDS, Facts
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import buildmatrix
from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.match import evidence
from buildmatrix.catalogue.model import Evidence, demangle
from buildmatrix.catalogue.releases import requirements
from buildmatrix.facts.inventory.archive import PACKAGES
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import Binary, Distribution, Inventory
from buildmatrix.facts.loader import resolve
from buildmatrix.facts.trees.wheel import WheelTree
from buildmatrix.images import store
from buildmatrix.judge.model import Verdict
from buildmatrix.judge.tree import TreeView
from buildmatrix.judge.verdicts import verdicts
from buildmatrix.matrix.model import Policy

#: Neutral by name, and yet a vendor's: the rules look at what such a distribution brings.
_OF_SEVERAL = ("multi-backend", "with-extra")
_EXTRA = re.compile(r"\bextra\b")
_SM = re.compile(r"(sm|compute)_(\d+)[a-z]*")


def inventory_of(wheel: Path, kept: Path | None = None) -> Inventory:
    """The facts of a wheel; read from the folder `kept` where the same reader left them."""
    if kept is None:
        with WheelTree(wheel) as tree:
            return collect(tree)
    path = kept / f"{wheel.stem}-{_reader()}.json"
    if not path.exists():
        kept.mkdir(parents=True, exist_ok=True)
        store.write(path, inventory_of(wheel))
    return store.read(path)


@lru_cache(maxsize=1)
def _reader() -> str:
    """Digest of the code that facts depend on."""
    root = Path(buildmatrix.__file__).parent
    digest = hashlib.sha256()
    for folder in PACKAGES:
        for path in sorted((root / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def facts(inventory: Inventory, seen: Sequence[Evidence], catalogue: Catalogue) -> dict[str, Facts]:
    """The scored facts; see `corpus_truth.TrueWheel.facts`."""
    return {
        "bundled": frozenset(
            (one.path, one.vendor) for one in seen if one.kind == "bundled" and one.role != "folder"
        ),
        "needed": frozenset(
            (one.path, one.detail, one.vendor) for one in seen if one.kind == "needed"
        ),
        "sections": frozenset(
            (binary.path, section.name)
            for binary in inventory.binaries
            for section in binary.elf.sections
            if catalogue.sections.find(section.name)
        ),
        "static": frozenset(_static(inventory, seen, catalogue)),
        "dlopen": frozenset(
            (one.path, one.detail.rpartition("/")[2], one.vendor)
            for one in seen
            if one.kind == "dlopen"
        ),
        "gpu": frozenset(
            (binary.path, architecture)
            for binary in inventory.binaries
            for code in binary.elf.device_code
            # Programs as text lie outside of the sections that the truth was read from.
            if code.format != "ptx-text" and (architecture := _architecture(code.arch)) is not None
        ),
        "requires": frozenset(_requires(inventory, catalogue)),
    }


def _requires(inventory: Inventory, catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    """What is always installed, what where a marker holds, and what with an extra."""
    for item in inventory.distributions:
        owned = {
            one.name
            for one in requirements(item, catalogue)
            if one.match is not None
            and one.match.vendor is not None
            and (one.match.weight != "neutral" or one.match.kind in _OF_SEVERAL)
        }
        for line in map(Requirement, item.requires):
            if (name := canonicalize_name(line.name)) in owned:
                marker = str(line.marker or "")
                kind = "extra" if _EXTRA.search(marker) else "marker"
                yield kind if marker else "unconditional", name


def _static(
    inventory: Inventory, seen: Sequence[Evidence], catalogue: Catalogue
) -> Iterator[tuple[str, str]]:
    """Runtimes of accelerators as evidence has them, and neutral ones by their marks."""
    for one in seen:
        if one.kind == "static":
            yield one.path, one.detail.partition(" ")[0]
    runtimes = {
        mark: owned.entry
        for owned in catalogue.static
        if owned.vendor is None
        for mark in owned.entry.marks
    }
    for binary in inventory.binaries:
        for mark in binary.elf.marks:
            runtime = runtimes.get(mark.name)
            # The runtime as a library of its own is not linked into itself.
            if runtime is not None and not is_library(runtime.shared, binary):
                yield binary.path, runtime.name


def is_library(patterns: Sequence[str], binary: Binary) -> bool:
    """Whether a file is one of these libraries, by its name or its SONAME."""
    stems = {pattern.partition(".so")[0] for pattern in patterns}
    names = (binary.path.rpartition("/")[2], binary.elf.soname or "")
    return any(demangle(name).partition(".so")[0] in stems for name in names)


def _architecture(name: str | None) -> str | None:
    """`sm_90a` as `sm_90`, `gfx90a:xnack+` as `gfx90a`: the truth has no features."""
    if name is None:
        return None
    match = _SM.fullmatch(name)
    if match is not None:
        return f"{match[1]}_{match[2]}"
    return name.partition(":")[0] if name.startswith("gfx") else None


def judged(
    inventory: Inventory, seen: Sequence[Evidence], *, installed: bool
) -> dict[str, Verdict]:
    """The verdict on the only distribution of a wheel, by backend.

    `installed` judges it beside what it requires, as the default index would serve that.
    """
    (item,) = inventory.distributions
    if installed:
        others = [
            Distribution(one.name, "", f"{one.name}.dist-info")
            for one in requirements(item, load())
            if one.active
        ]
        inventory = replace(inventory, distributions=(item, *others))
    policy, resolution = Policy(), resolve(inventory)
    trees = {
        backend: TreeView(backend, None, inventory, seen, policy, load(), resolution)
        for backend in BACKENDS
    }
    return {
        backend: next(one for one in verdicts(tree) if one.name == item.name)
        for backend, tree in trees.items()
    }


def evidence_of(inventory: Inventory) -> tuple[Evidence, ...]:
    """All evidence in a wheel."""
    return evidence(inventory, load())
