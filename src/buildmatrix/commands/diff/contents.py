"""Changes to distributions, vendor libraries and device code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from buildmatrix.base.parsing import natural, version_or_none
from buildmatrix.base.text import count, listing, size
from buildmatrix.catalogue.match import FOLDER_ROLE, PACKAGE_ROLE
from buildmatrix.catalogue.model import Evidence
from buildmatrix.catalogue.names import demangle, version_of
from buildmatrix.commands.diff.model import HeldDistribution, Library, Side
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.reports.diff.model import (
    ArchitectureChange,
    Change,
    DistributionChange,
    DistributionChanges,
    LibraryChange,
    Step,
    VersionOf,
)

Architectures = Mapping[tuple[str, str], frozenset[str]]


def group_architectures(evidence: Iterable[Evidence]) -> Architectures:
    """Map distribution (empty for files of none) and vendor to architectures."""
    by_key: dict[tuple[str, str], set[str]] = {}
    for item in evidence:
        if item.architectures:
            owner = (item.distribution or "").partition("==")[0]
            by_key.setdefault((owner, item.vendor), set()).update(item.architectures)
    return {key: frozenset(names) for key, names in by_key.items()}


def compare_architectures(
    before: Architectures, after: Architectures, in_both: Iterable[str], *, whole: bool
) -> tuple[ArchitectureChange, ...]:
    """Return the overall differences by vendor, then those of distributions `in_both` sides.

    Added and removed distributions are reported elsewhere. `whole` is True if all device code of
    both sides is known; otherwise there is no overall comparison.
    """
    changes = []
    for vendor in sorted({key[1] for key in (*before, *after)}) if whole else ():
        changes.append(
            _make_change(None, vendor, _merge_vendor(before, vendor), _merge_vendor(after, vendor))
        )
    both = set(in_both)
    for key in sorted({*before, *after}):
        if key[0] in both:
            nothing: frozenset[str] = frozenset()
            changes.append(_make_change(*key, before.get(key, nothing), after.get(key, nothing)))
    return tuple(change for change in changes if change.gained or change.lost)


def _merge_vendor(by_key: Architectures, vendor: str) -> frozenset[str]:
    return frozenset(name for key, names in by_key.items() if key[1] == vendor for name in names)


def _make_change(
    distribution: str | None, vendor: str, before: frozenset[str], after: frozenset[str]
) -> ArchitectureChange:
    return ArchitectureChange(
        distribution, vendor, _sort_naturally(after - before), _sort_naturally(before - after)
    )


def _sort_naturally(names: Iterable[str]) -> tuple[str, ...]:
    """Sort naturally: `sm_90` before `sm_120`."""
    return tuple(sorted(names, key=natural))


# Distributions


#: Names of the first parts of a release (PEP 440), by decreasing importance.
_STEPS: tuple[Step, ...] = ("major", "minor", "patch")

#: Beginnings of details about a different file.
_OTHER_FILE = ("other bytes", "another wheel")

_DistributionKey = tuple[str, str]


def compare_distributions(before: Side, after: Side) -> DistributionChanges:
    """Return the differences by name, and the number of unchanged distributions."""
    by_backend = len(before.backends) > 1 or len(after.backends) > 1
    old, new = (
        _group_distributions(before.held, by_backend),
        _group_distributions(after.held, by_backend),
    )
    is_wheel = before.is_wheel and after.is_wheel
    comparable = _is_comparable(before, after)
    changes: list[DistributionChange] = []
    same = 0
    for key in sorted({*old, *new}):
        change = _compare_distribution(
            key, old.get(key, []), new.get(key, []), is_wheel, comparable
        )
        if change is None:
            same += 1
        else:
            changes.append(change)
    return DistributionChanges(same, tuple(changes))


def _group_distributions(
    held: Iterable[HeldDistribution], by_backend: bool
) -> Mapping[_DistributionKey, list[HeldDistribution]]:
    by_key: dict[_DistributionKey, list[HeldDistribution]] = {}
    for item in sorted(held, key=lambda item: (item.name, item.version, item.sha256 or "")):
        by_key.setdefault((item.name, item.backend if by_backend else ""), []).append(item)
    return by_key


def _is_comparable(before: Side, after: Side) -> bool:
    """True if the files of both sides come from the same kind of installer."""
    installed = ("image", "tree")
    return before.kind == after.kind or (before.kind in installed and after.kind in installed)


def _compare_distribution(
    key: _DistributionKey,
    old: Sequence[HeldDistribution],
    new: Sequence[HeldDistribution],
    is_wheel: bool,
    comparable: bool,
) -> DistributionChange | None:
    name, backend = key
    before, after = (tuple(held.version for held in side) for side in (old, new))
    sizes = _sum_sizes(old), _sum_sizes(new)
    if not old or not new:
        change: Change = "removed" if old else "added"
        return DistributionChange(change, name, backend, before, after, *sizes)
    single = (old[0], new[0]) if len(old) == len(new) == 1 else None
    details = tuple(_find_details(*single, comparable)) if single else ()
    if Counter(before) == Counter(after) and not details:
        return None
    added, removed = _compare_requirements(old, new) if is_wheel else ((), ())
    step: Step
    step, is_downgrade = _find_step(*single, details) if single else ("", False)
    return DistributionChange(
        "changed", name, backend, before, after, *sizes, step, is_downgrade, details, added, removed
    )


def _sum_sizes(held: Sequence[HeldDistribution]) -> int | None:
    """Return bytes on disk, or those of the wheels if only these are known."""
    for sizes in ([item.size for item in held], [item.download for item in held]):
        present = [item for item in sizes if item is not None]
        if present and len(present) == len(held):
            return sum(present)
    return None


def _find_step(
    old: HeldDistribution, new: HeldDistribution, details: Sequence[str]
) -> tuple[Step, bool]:
    """Return the distance of two versions, and True if it is a downgrade."""
    if old.version == new.version:
        return "bytes" if any(detail.startswith(_OTHER_FILE) for detail in details) else "", False
    version, other = version_or_none(old.version), version_or_none(new.version)
    if version is None or other is None:
        return "", False
    if version.epoch != other.epoch:
        return "major", other < version
    parts = [side.release + (0,) * (len(_STEPS) - len(side.release)) for side in (version, other)]
    for step, a, b in zip(_STEPS, *parts, strict=False):
        if a != b:
            return step, other < version
    return ("local" if version.public == other.public else "patch"), other < version


def _find_details(old: HeldDistribution, new: HeldDistribution, comparable: bool) -> Iterator[str]:
    """Yield differences other than the version."""
    same_file = old.sha256 is not None and old.sha256 == new.sha256
    if None not in (old.index, new.index) and old.index != new.index and not same_file:
        yield f"from {new.index} in place of {old.index}"
    if old.version != new.version:
        return
    if old.wheel is not None and new.wheel is not None and old.wheel != new.wheel:
        yield f"another wheel: {_wheel_tags(new.wheel)} in place of {_wheel_tags(old.wheel)}"
        return
    if old.sha256 is not None and new.sha256 is not None:
        if old.sha256 != new.sha256:
            yield f"other bytes: sha256 {new.sha256[:12]} in place of {old.sha256[:12]}"
        return
    if not comparable:
        return
    files = list(_compare_files(old.binaries, new.binaries))
    if files:
        yield f"other bytes: {listing(files, 3)}"
    elif old.record is not None and new.record is not None:
        if old.record != new.record:
            yield "other bytes: the hashes in its RECORD differ, those of no binary"
    elif old.size is not None and new.size is not None and old.size != new.size:
        yield f"other bytes: {size(new.size)} in place of {size(old.size)}"


def _wheel_tags(wheel: str) -> str:
    return "-".join(wheel.removesuffix(".whl").split("-")[2:])


def _compare_files(
    old: Mapping[str, tuple[int, str]] | None, new: Mapping[str, tuple[int, str]] | None
) -> Iterator[str]:
    """Describe the binaries that differ."""
    if old is None or new is None:
        return
    gone, came = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    if gone:
        yield f"{count(len(gone), 'binary file')} less ({listing(gone, 2)})"
    if came:
        yield f"{count(len(came), 'binary file')} more ({listing(came, 2)})"
    for path in sorted(old.keys() & new.keys()):
        (size_before, build_before), (size_after, build_after) = old[path], new[path]
        if size_before != size_after:
            sign = "-" if size_after < size_before else "+"
            yield f"{path} {sign}{size(abs(size_after - size_before))}"
        elif build_before != build_after:
            yield f"{path} has another build id"


def _compare_requirements(
    old: Sequence[HeldDistribution], new: Sequence[HeldDistribution]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    before = {line for held in old for line in held.requires or ()}
    after = {line for held in new for line in held.requires or ()}
    return tuple(sorted(after - before)), tuple(sorted(before - after))


# Vendor libraries and their versions.
#
# No source always has the version of a library, so the most exact one wins: the version of the
# vendor's own distribution that ships it, then the longer of the versions in its SONAME and in its
# file name, then the toolkit of the SONAME in the catalogue. The result names the source.


#: Paths named in one change.
_PATHS = 20


def find_libraries(inventory: Inventory, evidence: Iterable[Evidence]) -> tuple[Library, ...]:
    """Return the copies of vendor libraries in a tree, including static ones; sorted."""
    seen = tuple(evidence)
    sonames = {binary.path: binary.elf.soname or "" for binary in inventory.binaries}
    theirs: Collection[tuple[str | None, str]] = {
        (item.distribution, item.backend)
        for item in seen
        if item.kind == "declared"
        and item.role == PACKAGE_ROLE
        and item.distribution
        # A build for a vendor's devices (torchvision, torch+cu128) has a version of its own.
        and item.weight == "strong"
        and "+" not in item.distribution
    }
    copies = dict.fromkeys(
        _make_library(item, sonames.get(item.path, ""), theirs)
        for item in seen
        if item.kind == "static" or (item.kind == "bundled" and item.role != FOLDER_ROLE)
    )
    return tuple(
        sorted(
            copies,
            key=lambda library: (library.backend, library.name, library.path, library.is_static),
        )
    )


def _make_library(
    item: Evidence, soname: str, theirs: Collection[tuple[str | None, str]]
) -> Library:
    owner, _, owner_version = (item.distribution or "").partition("==")
    if item.kind == "static":
        return Library(
            name=item.detail.partition(" (")[0],
            vendor=item.vendor,
            backend=item.backend,
            role=item.role,
            path=item.path,
            version=item.toolkit or "",
            version_of="toolkit" if item.toolkit else "",
            toolkit=item.toolkit or "",
            distribution=owner,
            is_static=True,
        )
    file = demangle(item.path.rpartition("/")[2])
    versions: list[tuple[str, VersionOf]] = [
        (version_of(soname), "soname"),
        (version_of(file), "file name"),
    ]
    version, source = max(versions, key=lambda pair: len(pair[0].split(".")) if pair[0] else 0)
    if (item.distribution, item.backend) in theirs and owner_version:
        version, source = owner_version, "distribution"
    elif not version and item.toolkit:
        version, source = item.toolkit, "toolkit"
    return Library(
        name=_library_stem(demangle(soname) or file),
        vendor=item.vendor,
        backend=item.backend,
        role=item.role,
        path=item.path,
        version=version,
        version_of=source if version else "",
        major=(version_of(soname) or version_of(file)).partition(".")[0],
        toolkit=item.toolkit or "",
        distribution=owner,
        size=item.size,
    )


def _library_stem(name: str) -> str:
    """Return `libcudnn_ops` for `libcudnn_ops.so.9`."""
    return name.partition(".so")[0].removesuffix(".a")


_LibraryKey = tuple[str, str, bool]


def compare_libraries(
    before: Sequence[Library], after: Sequence[Library]
) -> tuple[LibraryChange, ...]:
    """Return added, removed and changed libraries, by backend and name."""
    old, new = _group_libraries(before), _group_libraries(after)
    changes = (
        _compare_library(key, old.get(key, []), new.get(key, [])) for key in sorted({*old, *new})
    )
    return tuple(change for change in changes if change is not None)


def _group_libraries(copies: Iterable[Library]) -> Mapping[_LibraryKey, list[Library]]:
    by_key: dict[_LibraryKey, list[Library]] = {}
    for library in copies:
        by_key.setdefault((library.backend, library.name, library.is_static), []).append(library)
    return by_key


def _compare_library(
    key: _LibraryKey, old: Sequence[Library], new: Sequence[Library]
) -> LibraryChange | None:
    # Copies are identified by version and owner; the path may depend on the Python.
    copies = [
        Counter((library.version, library.distribution) for library in side) for side in (old, new)
    ]
    major = _compare_majors(old, new) if old and new else ""
    if copies[0] == copies[1] and not major:
        return None
    change: Change = "changed" if old and new else "removed" if old else "added"
    latest = new or old
    _, name, is_static = key
    first = latest[0]
    return LibraryChange(
        change,
        f"{name} (static)" if is_static else name,
        first.vendor,
        first.backend,
        first.role,
        tuple(sorted(library.version for library in old)),
        tuple(sorted(library.version for library in new)),
        first.version_of,
        tuple(sorted({library.distribution for library in latest if library.distribution})),
        major,
        sum(library.size for library in old),
        sum(library.size for library in new),
        tuple(sorted(library.path for library in latest))[:_PATHS],
    )


def _compare_majors(old: Sequence[Library], new: Sequence[Library]) -> str:
    """Return `8 -> 9` if a copy has a major version that no copy had before."""
    numbers: tuple[Callable[[Library], str], ...] = (
        lambda library: library.major,
        lambda library: library.toolkit,
        lambda library: library.version.partition(".")[0],
    )
    for number in numbers:
        before, after = (set(filter(None, map(number, side))) for side in (old, new))
        if before and after:
            return f"{_join(before)} -> {_join(after)}" if after - before else ""
    return ""


def _join(numbers: Iterable[str]) -> str:
    return "/".join(sorted(numbers))
