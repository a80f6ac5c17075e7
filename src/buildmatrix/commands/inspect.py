"""Inspection of one file, which reads like a scan and judges nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.catalogue.drivers import Support, architectures, support
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.match import PACKAGE_ROLE, evidence
from buildmatrix.catalogue.model import Evidence
from buildmatrix.catalogue.variants import VariantChoice, choose_variant
from buildmatrix.facts.elf.model import DeviceCode
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.listing import readable
from buildmatrix.facts.inventory.model import Distribution, Inventory, Unread
from buildmatrix.facts.inventory.variants import (
    LARGEST_OF_INDEX,
    VariantMetadata,
    format_properties,
    make_metadata,
    read_variants,
)
from buildmatrix.facts.symbols import read_imports
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.facts.trees.base import File, RandomAccess, Symlink, Tree, Trouble, reason
from buildmatrix.matrix.model import NodeClass, Spec, Target
from buildmatrix.reports.inspect import (
    Architecture,
    Contents,
    Holding,
    Inspection,
    LayerShare,
    Machines,
    ReleaseVariant,
    Share,
    VariantUse,
)
from buildmatrix.sources.local import read_wheel

if TYPE_CHECKING:
    from buildmatrix.images.store.facts import FactCache


def sum_contents(
    inventory: Inventory, evidence: Sequence[Evidence], machines: Machines | None = None
) -> Contents:
    """Add up `inventory`; `machines` are those that it must run on, if known.

    Bytes of a file count once for each vendor that the file belongs to.
    """
    paths_of: list[set[str]] = [set() for _ in inventory.layers]
    for path, index in inventory.origins.items():
        if 0 <= index < len(paths_of):
            paths_of[index].add(path)
    layers = []
    for layer, paths in zip(inventory.layers, paths_of, strict=True):
        vendors = _sum_vendors(item for item in evidence if item.path in paths)
        share = LayerShare(layer.instruction, layer.size, layer.hidden, len(paths), vendors)
        layers.append(share)
    return Contents(
        files=inventory.stats.files,
        size=inventory.stats.bytes_total,
        binaries=len(inventory.binaries),
        shares=sum_shares(evidence),
        distributions=_sum_distributions(inventory, evidence),
        layers=tuple(layers),
        architectures=_sum_architectures(inventory, evidence, machines),
        machines=machines,
    )


def _sum_distributions(inventory: Inventory, evidence: Sequence[Evidence]) -> tuple[Holding, ...]:
    """Return all distributions, the largest first, then the files of none."""
    items_of: dict[str | None, list[Evidence]] = {}
    for item in evidence:
        items_of.setdefault(item.distribution, []).append(item)
    holdings = [
        Holding(
            distribution.name,
            distribution.version,
            distribution.size,
            _sum_vendors(items_of.get(distribution.owner, ())),
        )
        for distribution in inventory.distributions
    ]
    holdings.sort(key=lambda holding: (-holding.size, holding.name))
    loose = sum(binary.size for binary in inventory.binaries if binary.owner is None)
    loose += sum(artefact.size for artefact in inventory.artefacts if artefact.owner is None)
    if loose:
        holdings.append(Holding("", "", loose, _sum_vendors(items_of.get(None, ()))))
    return tuple(holdings)


def _sum_vendors(evidence: Iterable[Evidence]) -> dict[str, int]:
    """Return the bytes of files by backend, the most first."""
    sizes: dict[str, dict[str, int]] = {}
    for item in evidence:
        if item.kind in ("bundled", "tool", "device-code"):
            files = sizes.setdefault(item.backend, {})
            files[item.path] = max(item.size, files.get(item.path, 0))
    sums = {backend: sum(files.values()) for backend, files in sizes.items()}
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def _sum_architectures(
    inventory: Inventory, evidence: Iterable[Evidence], machines: Machines | None
) -> tuple[Architecture, ...]:
    """Return device code by backend and architecture, the largest first."""
    owners = {
        (item.path, arch): item.backend
        for item in evidence
        if item.kind == "device-code"
        for arch in (*item.architectures, None)
    }
    sums: dict[tuple[str, str, str], tuple[int, int, set[str]]] = {}
    for path, code in _list_code(inventory):
        backend = owners.get((path, code.arch))
        if backend is None:
            continue
        key = backend, code.arch or "", code.kind
        size, count, files = sums.get(key, (0, 0, set()))
        sums[key] = size + code.size, count + code.count, {*files, path}
    rows = [
        Architecture(
            backend, arch, kind, size, count, len(files), _find_use(backend, arch, kind, machines)
        )
        for (backend, arch, kind), (size, count, files) in sums.items()
    ]
    rows.sort(key=lambda row: (-row.size, row.backend, row.arch, row.kind))
    return tuple(rows)


def _list_code(inventory: Inventory) -> Iterator[tuple[str, DeviceCode]]:
    for binary in inventory.binaries:
        yield from ((binary.path, code) for code in binary.elf.device_code)
    for artefact in inventory.artefacts:
        yield from ((artefact.path, code) for code in artefact.device_code)


def _find_use(backend: str, arch: str, kind: str, machines: Machines | None) -> str:
    """Return `native`, `jit` or `none` for the best of the machines; empty if unknown."""
    if machines is None or not arch:
        return ""
    # Bitcode is for a compiler, which makes code for any of them.
    if kind in ("bitcode", "ir") and backend == machines.backend:
        return ""
    if backend != machines.backend:
        return "none"
    served = {support(device, [arch]) for device in machines.archs}
    ways: tuple[Support, ...] = ("native", "jit", "unknown")
    best = next((way for way in ways if way in served), "none")
    return "" if best == "unknown" else best


#: Evidence of a vendor's file, or part of one; the other kinds only refer to something.
_HOLDS = ("bundled", "tool", "device-code", "static")


def sum_shares(evidence: Iterable[Evidence]) -> tuple[Share, ...]:
    """Sum each vendor's files by role; the bytes of a file count once per vendor.

    A file that belongs to the vendor as a whole counts as that, not for its device code.
    """
    order = {kind: number for number, kind in enumerate(_HOLDS)}
    groups: dict[tuple[str, str, str], list[Evidence]] = {}
    homes: dict[tuple[str, str], str] = {}
    for item in sorted(
        (item for item in evidence if item.kind in order and item.role != PACKAGE_ROLE),
        key=lambda item: order[item.kind],
    ):
        # Statically linked code has no size of its own, so it is listed separately.
        role = item.role
        if item.kind != "static":
            role = homes.setdefault((item.vendor, item.path), role)
        groups.setdefault((item.vendor, item.backend, role), []).append(item)
    shares = []
    for (vendor, backend, role), items in groups.items():
        sizes: dict[str, int] = {}
        for item in items:
            sizes.setdefault(item.path, item.size)
        architectures = {name for item in items for name in item.architectures}
        shares.append(
            Share(vendor, backend, role, sum(sizes.values()), len(sizes),
                  tuple(sorted(architectures)))
        )  # fmt: skip
    return tuple(
        sorted(shares, key=lambda share: (-share.size, share.vendor, share.backend, share.role))
    )


def inspect(
    path: Path,
    catalogue: Catalogue,
    cache: FactCache | None = None,
    machines: Machines | None = None,
    target: Target | None = None,
) -> Inspection:
    """Inspect the ELF object, file of device code, archive or wheel at `path`.

    `machines` are those that it must run on, if known, and `target` is their source. Files with the
    variants of a release are supported, too. Nothing in the file is executed.

    Raises `UsageError` for other files, and `UndecidedError` for unreadable ones.
    """
    if not path.exists():
        raise UsageError(f"there is no {path}")
    if not path.is_file():
        raise UsageError(f"{path} is not a file; `buildmatrix scan` reads folders")
    try:
        if path.suffix == ".whl":
            return _inspect_wheel(path, catalogue, cache, machines, target)
        if is_variant_metadata(path.name):
            return _inspect_release(path, catalogue, target)
        return _inspect_file(path, catalogue)
    except OSError as error:
        raise UndecidedError(f"{path} cannot be read: {reason(error)}") from error


class _SingleFileTree(Tree):
    """The file at `path`, under its absolute path: a folder such as /opt/rocm is informative."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._folder = DirectoryTree(self._path.parent)
        self._size = self._path.stat().st_size

    def close(self) -> None:
        self._folder.close()

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        yield File(os.fspath(self._path).lstrip("/"), self._size)

    def open(self, path: str) -> AbstractContextManager[RandomAccess]:
        return self._folder.open(self._path.name)


def _inspect_file(path: Path, catalogue: Catalogue) -> Inspection:
    tree = _SingleFileTree(path)
    try:
        inventory = collect(tree)
    finally:
        tree.close()
    facts = inventory.binaries or inventory.artefacts or inventory.containers or inventory.unread
    if not facts:
        raise UsageError(
            f"{path} is not an ELF object, a file of device code, an archive of these, or a wheel; "
            "there is nothing to inspect"
        )
    kind = inventory.artefacts[0].kind if inventory.artefacts else "unreadable"
    unread = list(inventory.unread)
    imports, problems = read_imports(path) if inventory.loadable else ((), ())
    known = {why for binary in inventory.binaries for why in binary.elf.unread}
    unread += [
        Unread(readable(str(path)), f"the imported symbols are not all known: {why}")
        for why in problems
        if why not in known
    ]
    return Inspection(
        path=readable(str(path)),
        size=inventory.stats.bytes_total,
        kind="elf" if inventory.loadable else "archive" if inventory.containers else kind,
        binaries=inventory.binaries,
        artefacts=inventory.artefacts,
        imports=imports,
        evidence=evidence(inventory, catalogue),
        unread=tuple(unread),
    )


def _inspect_release(path: Path, catalogue: Catalogue, target: Target | None) -> Inspection:
    """Inspect an index's metadata of a release's variants, or that of a wheel."""
    size = path.stat().st_size
    inspection = Inspection(path=readable(str(path)), size=size, kind="variants")
    try:
        if size > LARGEST_OF_INDEX:
            raise ValueError(f"it has more than {LARGEST_OF_INDEX:,} bytes")
        metadata = read_variants(path.read_bytes())
    except ValueError as error:
        return replace(inspection, unread=(Unread(inspection.path, str(error)),))
    return replace(inspection, variants=list_release_variants(metadata, target, catalogue))


def _inspect_wheel(
    path: Path,
    catalogue: Catalogue,
    cache: FactCache | None,
    machines: Machines | None,
    target: Target | None,
) -> Inspection:
    inventory = read_wheel(path, cache)
    return replace(
        inspect_tree(str(path), inventory, catalogue, machines, target),
        size=path.stat().st_size,
        kind="wheel",
        binaries=inventory.binaries,
        artefacts=inventory.artefacts,
        distributions=inventory.distributions,
        evidence=evidence(inventory, catalogue),
    )


def inspect_tree(
    name: str,
    inventory: Inventory,
    catalogue: Catalogue,
    machines: Machines | None = None,
    target: Target | None = None,
) -> Inspection:
    """Inspect an image or a folder; files are added up and not listed."""
    items = evidence(inventory, catalogue)
    return Inspection(
        path=readable(name),
        size=inventory.stats.bytes_total,
        kind="tree",
        shares=sum_shares(items),
        unread=inventory.unread,
        contents=sum_contents(inventory, items, machines),
        variants=find_variants(inventory.distributions, target, catalogue),
    )


# Wheel variants


#: Files with only metadata of variants.
_OF_INDEX = "-variants.json"
_OF_WHEEL = "variant.json"


def is_variant_metadata(name: str) -> bool:
    """True if a file of this name lists variants."""
    return name == _OF_WHEEL or name.endswith(_OF_INDEX)


def find_variants(
    distributions: Iterable[Distribution], target: Target | None, catalogue: Catalogue
) -> tuple[ReleaseVariant, ...]:
    """Return the variants of the distributions in a wheel or a tree."""
    return tuple(
        shown
        for item in distributions
        if item.variant is not None
        for shown in list_release_variants(
            make_metadata(item.variant), target, catalogue, f"{item.name} {item.version}"
        )
    )


def list_release_variants(
    metadata: VariantMetadata, target: Target | None, catalogue: Catalogue, distribution: str = ""
) -> tuple[ReleaseVariant, ...]:
    """Return all variants by label, with their use on each node class of `target`."""
    choices: list[tuple[str, VariantChoice]] = []
    if target is not None:
        nodes: Sequence[NodeClass | None] = target.node_classes or (None,)
        for node in nodes:
            choice = choose_variant(metadata, node, target, catalogue)
            choices.append((node.name if node is not None else target.id, choice))
    return tuple(
        ReleaseVariant(
            label,
            distribution,
            format_properties(properties),
            tuple(_make_use(label, *choice) for choice in choices),
        )
        for label, properties in sorted(metadata.variants.items())
    )


def _make_use(label: str, machines: str, choice: VariantChoice) -> VariantUse:
    if label == choice.label:
        return VariantUse(machines, "taken")
    reason = choice.reasons[label]
    if label in choice.undecided:
        return VariantUse(machines, "undecided", reason)
    return VariantUse(machines, "not-taken", reason)


# Machines of a target


def find_machines(spec: Spec, targets: Sequence[Target], select: str) -> Machines:
    """Return the GPU architectures of a target's node classes, else those of the target.

    Raises `UsageError` if `select` matches several targets, or no GPUs are declared.
    """
    if len(targets) > 1:
        names = ", ".join(target.id for target in targets)
        raise UsageError(f"--select {select} means several targets ({names}); name one")
    target = targets[0]
    machines = find_target_machines(target, spec)
    if machines is None:
        raise UsageError(
            f"nothing says which GPUs {target.id} runs on; give it `archs`, or a node class with "
            "`archs` or `products` in the specification"
        )
    return machines


def find_target_machines(target: Target, spec: Spec) -> Machines | None:
    """Return the machines of a known target; None if no GPUs are declared."""
    nodes = target.node_classes
    catalogue = load(spec.catalogue_files)
    machines = (arch for node in nodes for arch in architectures(node, catalogue))
    archs = tuple(dict.fromkeys(machines)) or target.archs
    has_device = catalogue.backends[target.backend].vendor is not None
    if not archs and has_device:
        return None
    names = ", ".join(node.name for node in nodes)
    where = f"{target.id} ({names or 'its archs'}: {' '.join(archs)})" if archs else target.id
    return Machines(where, target.backend, archs)
