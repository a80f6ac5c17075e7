"""Contents of a wheel, image or tree: bytes by distribution, vendor, layer, architecture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from buildmatrix.catalogue.architectures import Support, support
from buildmatrix.catalogue.match import PACKAGE_ROLE
from buildmatrix.catalogue.model import Evidence
from buildmatrix.facts.device_code.model import DeviceCode
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.reports.inspect import Architecture, Contents, Holding, LayerShare, Machines, Share


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
    return tuple(
        sorted(
            rows,
            key=lambda architecture: (
                -architecture.size,
                architecture.backend,
                architecture.arch,
                architecture.kind,
            ),
        )
    )


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
