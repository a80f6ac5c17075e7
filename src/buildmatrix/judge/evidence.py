"""Vendor ownership of files and distributions, their sizes, and the files of the base image."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import DistributionMatch, Evidence, EvidenceKind
from buildmatrix.facts.elf.search import DEVICE_SECTIONS
from buildmatrix.facts.inventory.listing import distribution_name
from buildmatrix.facts.inventory.model import Binary, Inventory, PythonImport
from buildmatrix.facts.loader import Needed
from buildmatrix.facts.python_imports import Reach
from buildmatrix.judge.model import Verdict


def is_foreign(item: Evidence | DistributionMatch, backend: str, catalogue: Catalogue) -> bool:
    """Return True if a thing belongs to another vendor than `backend` does.

    Things without a vendor are not foreign, and backends of one vendor (oneAPI and OpenVINO) are
    not foreign to each other. Code that a driver compiled for Vulkan belongs to Vulkan, whichever
    vendor's driver it was.
    """
    if item.vendor is None or item.backend == backend:
        return False
    if isinstance(item, Evidence) and item.kind == "device-code" and item.role == backend:
        return False
    return catalogue.vendor_of(backend) != item.vendor


# The bloat threshold applies to packed sizes: a build may compress its kernels, and a wheel
# compresses them again, so equal kernels should have equal sizes.


#: Kinds of evidence that represent bytes of a file.
HELD: tuple[EvidenceKind, ...] = ("bundled", "tool", "device-code", "static")

#: Compression ratio of uncompressed device code in a wheel or a layer: 0.13 to 0.42 in the wheels
#: of the corpus. Code that its compiler compressed packs to 0.7 to 0.98, and counts in full.
_PACKED = 0.33


class PackedSizeRange(Struct, frozen=True):
    """Bytes of a wheel or a layer that carry the device code of one binary.

    The bounds differ where the binary was not read to its end.
    """

    least: int
    most: int


def measure_device_code(inventory: Inventory) -> Mapping[str, PackedSizeRange]:
    """Return the packed size of each binary that has, or may have, device code.

    A wheel records the packed size of a whole file; for other trees it is an estimate.
    """
    pairs = ((binary.path, _measure_binary(binary)) for binary in inventory.binaries)
    return {path: carried for path, carried in pairs if carried.most}


def _measure_binary(binary: Binary) -> PackedSizeRange:
    elf = binary.elf
    seen = sum(
        code.size * (1 - (1 - _PACKED) * (code.count - code.compressed) / max(code.count, 1))
        for code in elf.device_code
    )
    least = most = round(seen)
    if elf.read is not None:
        # Sections that were not reached are as large as the table of sections says.
        sections = sum(
            section.size
            for section in elf.sections
            if not section.nobits and section.name.startswith(DEVICE_SECTIONS)
        )
        least = max(least, round(_PACKED * sections))
        most = max(least, sections) + elf.unread_data
    if binary.packed is not None:
        least, most = min(least, binary.packed), min(most, binary.packed)
    return PackedSizeRange(least, most)


def total(evidence: Iterable[Evidence]) -> int:
    """Return the bytes that the evidence represents, each file once."""
    sizes: dict[str, int] = {}
    for item in evidence:
        sizes[item.path] = max(item.size, sizes.get(item.path, 0))
    return sum(sizes.values())


# Base image files


_SYSTEM = frozenset({"bin", "etc", "lib", "lib32", "lib64", "opt", "sbin", "usr", "var"})
_PACKAGES = frozenset({"site-packages", "dist-packages"})


def is_base(item: Evidence) -> bool:
    """Return True if it belongs to the system, not to a Python distribution or an application."""
    if item.distribution is not None:
        return False
    parts = item.path.split("/")
    return parts[0] in _SYSTEM and not _PACKAGES.intersection(parts)


# Owners of imported modules.
#
# An import that fails inside another distribution fails all the same. If the tree contains that
# distribution, its own files decide; for a single wheel, the catalogue knows its requirements.


#: Parts of a module's name that a distribution's name may be made of: `cuda.bindings`.
_MOST_PARTS = 3


class Imported(Struct, frozen=True):
    """An import statement, and the catalogue's match of the imported distribution."""

    statement: PythonImport
    match: DistributionMatch

    @property
    def place(self) -> str:
        """`path:line`"""
        return f"{self.statement.path}:{self.statement.line}"


def find_imports(
    statements: Sequence[PythonImport], installed: Mapping[str, str], catalogue: Catalogue
) -> Mapping[str, tuple[Imported, ...]]:
    """Map importers (`name==version`) to their imports in the catalogue."""
    by_importer: dict[str, list[Imported]] = {}
    for python_import in statements:
        match = _match(python_import, installed, catalogue)
        if python_import.how == "missing" and python_import.provider is None:
            match = find_system_backend(python_import.module, catalogue) or match
        if match is not None:
            by_importer.setdefault(python_import.owner, []).append(Imported(python_import, match))
    return {owner: tuple(imports) for owner, imports in by_importer.items()}


def _match(
    python_import: PythonImport, installed: Mapping[str, str], catalogue: Catalogue
) -> DistributionMatch | None:
    if python_import.provider is not None:
        name, _, version = python_import.provider.partition("==")
        return distribution(name, version, catalogue)
    parts = python_import.module.split(".")
    for count in range(min(len(parts), _MOST_PARTS), 0, -1):
        name = distribution_name("-".join(parts[:count]))
        match = distribution(name, installed.get(name, ""), catalogue)
        if match is not None:
            return match
    return None


def find_system_backend(module: str, catalogue: Catalogue) -> DistributionMatch | None:
    """Return the backend whose system packages provide a module; None if no entry matches."""
    for owned in catalogue.modules.find(module.partition(".")[0]):
        return DistributionMatch(
            vendor=owned.vendor,
            backend=owned.backend,
            kind="native",
            weight="strong",
            toolkit=None,
            replace={},
            entry=owned.glob,
            confidence=owned.confidence,
        )
    return None


def runtimes(evidence: Sequence[Evidence]) -> frozenset[str]:
    """Return the backends with a runtime library in the tree, whichever distribution owns it."""
    return frozenset(
        item.backend
        for item in evidence
        if item.kind == "bundled" and item.role == "runtime" and item.weight == "strong"
    )


def carry_failures(
    verdicts: Sequence[Verdict], statements: Sequence[PythonImport]
) -> Iterator[Verdict]:
    """Yield the verdicts, with distributions broken that import a broken distribution."""
    reasons: dict[str, str] = {}
    broken = {
        item.owner
        for item in verdicts
        if item.failure is not None and item.failure.kind != "plugin"
    }
    unguarded = [
        statement
        for statement in statements
        if statement.how == "imported" and statement.provider is not None
    ]
    ahead = sorted(broken)
    for provider in ahead:  # grows while it is walked
        for python_import in unguarded:
            if python_import.provider == provider and python_import.owner not in broken:
                broken.add(python_import.owner)
                ahead.append(python_import.owner)
                name = provider.replace("==", " ")
                reasons[python_import.owner] = (
                    f"its import imports {name} ({python_import.path}:{python_import.line}), "
                    "which cannot be imported"
                )
    for verdict in verdicts:
        reason = reasons.get(verdict.owner)
        if reason is not None:
            verdict = replace(verdict, verdict="broken", reason=reason, by_others=True)
        yield verdict


# Reach of imports to each file of a tree, links followed.
#
# Facts have the reach of files that Python code names (`facts.inventory.model.Reach`). Files linked
# by these are loaded with them, and so on.


#: From imports that fail with the file to files without a known loader.
_REACHES: tuple[Reach, ...] = ("import", "guarded", "lazy", "unknown")


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
    groups: dict[tuple[str | None, str | None], list[str]] = {}
    for binary in inventory.binaries:
        if binary.reach == "chosen":
            groups.setdefault((binary.owner, binary.reached_from), []).append(binary.path)
    for paths in groups.values():
        lost = all(any(file in hopeless for file in closure([path], links)) for path in paths)
        result |= dict.fromkeys(paths, "import" if lost else "guarded")
    for level in _REACHES[:-1]:
        reached = [path for path, extent in result.items() if extent == level]
        for path in reached:  # grows while it is walked
            for further in links.get(path, ()):
                # A file that was not opened is there, and nothing is known of its own links.
                if further in result and _REACHES.index(result[further]) > _REACHES.index(level):
                    result[further] = level
                    reached.append(further)
    return result


def closure(starts: Iterable[str], links: Mapping[str, Iterable[str]]) -> Collection[str]:
    """Return files and all that they link, directly or not."""
    reached = dict.fromkeys(starts)
    ahead = list(reached)
    for file in ahead:  # grows while it is walked
        for further in links.get(file, ()):
            if further not in reached:
                reached[further] = None
                ahead.append(further)
    return reached


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
