"""Changes to distributions, vendor libraries and device code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter

from msgspec import Struct, field

from buildmatrix.base.data import replace
from buildmatrix.base.parsing import natural, version_or_none
from buildmatrix.base.text import count, listing, size
from buildmatrix.catalogue.files import FOLDER_ROLE
from buildmatrix.catalogue.match import PACKAGE_ROLE
from buildmatrix.catalogue.model import Evidence, demangle, version_of
from buildmatrix.facts.inventory.model import Inventory, Layer, Unread
from buildmatrix.judge.model import Finding, Verdict
from buildmatrix.reports.diff import (
    ArchitectureChange,
    Change,
    DistributionChange,
    DistributionChanges,
    Kind,
    LibraryChange,
    Step,
    VersionOf,
)


class HeldDistribution(Struct, frozen=True):
    """One distribution of a side. None means unknown."""

    name: str
    version: str
    #: Backend of its image; only for sides with several images.
    backend: str = ""
    #: Bytes of its installed files, and of its wheel.
    size: int | None = None
    download: int | None = None
    #: Its wheel, and the wheel's sha256 in hex.
    wheel: str | None = None
    sha256: str | None = None
    index: str | None = None
    #: `facts.inventory.model.Distribution.record`.
    record: str | None = None
    #: `Requires-Dist` lines.
    requires: tuple[str, ...] | None = None
    #: Path of a binary relative to its distribution, to bytes and build id.
    binaries: Mapping[str, tuple[int, str]] | None = None


class Library(Struct, frozen=True):
    """One copy of a library that belongs to a vendor."""

    #: Without version and without additions of a wheel builder: `libcudnn_ops`.
    name: str
    vendor: str
    backend: str
    role: str
    path: str
    version: str = ""
    version_of: VersionOf = ""
    #: First component of the SONAME's version; empty if it has none.
    major: str = ""
    #: Toolkit line of the SONAME in the catalogue.
    toolkit: str = ""
    #: Name of the distribution that ships it.
    distribution: str = ""
    size: int = 0
    #: True if it is statically linked into `path`, without a file of its own.
    is_static: bool = False


class Side(Struct, frozen=True):
    """One of the two sides of a comparison, as far as it is known."""

    #: Name given by the user: `docker:app:1.4`.
    source: str
    kind: Kind
    #: Subject of a report; empty if `source` says it.
    subject: str = ""
    #: Identifiers of the targets that it was judged for, with their backends.
    targets: Mapping[str, str] = field(default_factory=dict)
    #: True for a single wheel instead of a set of distributions.
    is_wheel: bool = False
    held: tuple[HeldDistribution, ...] = ()
    libraries: tuple[Library, ...] | None = None
    #: Distribution (empty for files without one) and vendor to architectures of device code.
    architectures: Mapping[tuple[str, str], frozenset[str]] | None = None
    #: Distributions with unread files, whose device code is not known in full.
    partial: frozenset[str] = frozenset()
    #: Vendor and backend to the bytes of their files.
    vendors: Mapping[tuple[str, str], int] | None = None
    #: Bytes of all files.
    size: int | None = None
    layers: tuple[Layer, ...] | None = None
    environment: Mapping[str, str] | None = None
    #: Base image, from its labels.
    base: str | None = None
    digest: str | None = None
    #: None if it was not judged.
    findings: tuple[Finding, ...] | None = None
    verdicts: tuple[Verdict, ...] | None = None
    unread: tuple[Unread, ...] = ()
    #: True if something requested is unknown.
    is_undecided: bool = False

    @property
    def backends(self) -> tuple[str, ...]:
        """Backends that it was judged for, without duplicates."""
        return tuple(dict.fromkeys(self.targets.values()))


Architectures = Mapping[tuple[str, str], frozenset[str]]


def group_architectures(evidence: Iterable[Evidence]) -> Architectures:
    """Map distribution (empty for files of none) and vendor to architectures."""
    by_key: dict[tuple[str, str], set[str]] = {}
    for item in evidence:
        if item.architectures:
            owner = (item.distribution or "").partition("==")[0]
            by_key.setdefault((owner, item.vendor), set()).update(item.architectures)
    return {key: frozenset(names) for key, names in by_key.items()}


def group_verdict_architectures(verdicts: Iterable[Verdict]) -> Architectures:
    """Map distribution and vendor to architectures, the only such data in a report."""
    by_key: dict[tuple[str, str], frozenset[str]] = {}
    for verdict in verdicts:
        for vendor, names in verdict.architectures.items():
            key = verdict.name, vendor
            by_key[key] = by_key.get(key, frozenset()) | frozenset(names)
    return by_key


def compare_architectures(
    before: Architectures, after: Architectures, in_both: Iterable[str], *, whole: bool
) -> tuple[ArchitectureChange, ...]:
    """Return the overall differences by vendor, then those of distributions `in_both` sides.

    Added and removed distributions are reported elsewhere. `whole` is True if all device code of
    both sides is known; otherwise there is no overall comparison.
    """
    both = set(in_both)
    keys = sorted({*before, *after})
    vendors = sorted({vendor for _, vendor in keys}) if whole else []
    places: list[tuple[str | None, str]] = [(None, vendor) for vendor in vendors]
    places += (key for key in keys if key[0] in both)
    changes = []
    for distribution, vendor in places:
        old, new = (
            {
                name
                for key, names in side.items()
                if key[1] == vendor and distribution in (None, key[0])
                for name in names
            }
            for side in (before, after)
        )
        if old != new:
            # Naturally: `sm_90` before `sm_120`.
            gained, lost = (tuple(sorted(names, key=natural)) for names in (new - old, old - new))
            changes.append(ArchitectureChange(distribution, vendor, gained, lost))
    return tuple(changes)


# Distributions


#: Names of the first parts of a release (PEP 440), by decreasing importance.
_STEPS: tuple[Step, ...] = ("major", "minor", "patch")

#: Beginnings of details about a different file.
_OTHER_FILE = ("other bytes", "another wheel")


def compare_distributions(before: Side, after: Side) -> DistributionChanges:
    """Return the differences by name, and the number of unchanged distributions."""
    by_backend = len(before.backends) > 1 or len(after.backends) > 1
    by_key: dict[tuple[str, str], tuple[list[HeldDistribution], list[HeldDistribution]]] = {}
    for number, side in enumerate((before, after)):
        for item in sorted(
            side.held, key=lambda item: (item.name, item.version, item.sha256 or "")
        ):
            key = item.name, item.backend if by_backend else ""
            by_key.setdefault(key, ([], []))[number].append(item)
    is_wheel = before.is_wheel and after.is_wheel
    # Files can be compared if they come from the same kind of installer.
    comparable = before.kind == after.kind or {before.kind, after.kind} == {"image", "tree"}
    changes: list[DistributionChange] = []
    same = 0
    for key, (was, now) in sorted(by_key.items(), key=itemgetter(0)):
        versions = tuple(item.version for item in was), tuple(item.version for item in now)
        sizes = _sum_sizes(was), _sum_sizes(now)
        if not was or not now:
            change: Change = "removed" if was else "added"
            changes.append(DistributionChange(change, *key, *versions, *sizes))
            continue
        single = (was[0], now[0]) if len(was) == len(now) == 1 else None
        details = tuple(_find_details(*single, comparable)) if single else ()
        if Counter(versions[0]) == Counter(versions[1]) and not details:
            same += 1
            continue
        step: Step
        step, is_downgrade = _find_step(*single, details) if single else ("", False)
        before_lines, after_lines = (
            {line for item in side for line in item.requires or () if is_wheel}
            for side in (was, now)
        )
        added = tuple(sorted(after_lines - before_lines))
        removed = tuple(sorted(before_lines - after_lines))
        changes.append(
            DistributionChange(
                "changed", *key, *versions, *sizes, step, is_downgrade, details, added, removed
            )
        )
    return DistributionChanges(same, tuple(changes))


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
    return tuple(sorted(copies, key=attrgetter("backend", "name", "path", "is_static")))


def _make_library(
    item: Evidence, soname: str, theirs: Collection[tuple[str | None, str]]
) -> Library:
    owner, _, owner_version = (item.distribution or "").partition("==")
    toolkit = item.toolkit or ""
    library = Library(
        item.detail.partition(" (")[0],
        item.vendor,
        item.backend,
        item.role,
        item.path,
        version=toolkit,
        version_of="toolkit" if toolkit else "",
        toolkit=toolkit,
        distribution=owner,
        is_static=item.kind == "static",
    )
    if library.is_static:
        return library
    file = demangle(item.path.rpartition("/")[2])
    versions: list[tuple[str, VersionOf]] = [
        (version_of(soname), "soname"),
        (version_of(file), "file name"),
    ]
    version, source = max(versions, key=lambda pair: len(pair[0].split(".")) if pair[0] else 0)
    if (item.distribution, item.backend) in theirs and owner_version:
        version, source = owner_version, "distribution"
    elif not version and toolkit:
        version, source = toolkit, "toolkit"
    return replace(
        library,
        # `libcudnn_ops` of `libcudnn_ops.so.9`.
        name=(demangle(soname) or file).partition(".so")[0].removesuffix(".a"),
        version=version,
        version_of=source if version else "",
        major=(version_of(soname) or version_of(file)).partition(".")[0],
        size=item.size,
    )


def compare_libraries(
    before: Sequence[Library], after: Sequence[Library]
) -> tuple[LibraryChange, ...]:
    """Return added, removed and changed libraries, by backend and name."""
    by_key: dict[tuple[str, str, bool], tuple[list[Library], list[Library]]] = {}
    for number, side in enumerate((before, after)):
        for library in side:
            key = library.backend, library.name, library.is_static
            by_key.setdefault(key, ([], []))[number].append(library)
    changes = []
    for (_, name, is_static), (old, new) in sorted(by_key.items(), key=itemgetter(0)):
        # Copies are identified by version and owner; the path may depend on the Python.
        copies = [
            Counter((item.version, item.distribution) for item in side) for side in (old, new)
        ]
        major = _compare_majors(old, new) if old and new else ""
        if copies[0] == copies[1] and not major:
            continue
        change: Change = "changed" if old and new else "removed" if old else "added"
        latest = new or old
        changes.append(
            LibraryChange(
                change,
                f"{name} (static)" if is_static else name,
                latest[0].vendor,
                latest[0].backend,
                latest[0].role,
                tuple(sorted(library.version for library in old)),
                tuple(sorted(library.version for library in new)),
                latest[0].version_of,
                tuple(sorted({library.distribution for library in latest} - {""})),
                major,
                sum(library.size for library in old),
                sum(library.size for library in new),
                tuple(sorted(library.path for library in latest))[:_PATHS],
            )
        )
    return tuple(changes)


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
            old_majors, new_majors = ("/".join(sorted(side)) for side in (before, after))
            return f"{old_majors} -> {new_majors}" if after - before else ""
    return ""
