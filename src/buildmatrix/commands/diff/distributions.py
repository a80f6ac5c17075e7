"""Distributions that were added, removed or changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from buildmatrix.commands.diff.model import HeldDistribution, Side
from buildmatrix.parsing import version_or_none
from buildmatrix.phrases import count, listing, size
from buildmatrix.reports.diff.model import (
    Change,
    DistributionChange,
    DistributionChanges,
    Step,
)

#: Names of the first parts of a release (PEP 440), by decreasing importance.
_STEPS: tuple[Step, ...] = ("major", "minor", "patch")

#: Beginnings of details about a different file.
_OTHER_FILE = ("other bytes", "another wheel")

_Key = tuple[str, str]


def compare_distributions(before: Side, after: Side) -> DistributionChanges:
    """Return the differences by name, and the number of unchanged distributions."""
    by_backend = len(before.backends) > 1 or len(after.backends) > 1
    old, new = _group(before.held, by_backend), _group(after.held, by_backend)
    is_wheel = before.is_wheel and after.is_wheel
    comparable = _is_comparable(before, after)
    changes: list[DistributionChange] = []
    same = 0
    for key in sorted({*old, *new}):
        change = _compare(key, old.get(key, []), new.get(key, []), is_wheel, comparable)
        if change is None:
            same += 1
        else:
            changes.append(change)
    return DistributionChanges(same, tuple(changes))


def _group(
    held: Iterable[HeldDistribution], by_backend: bool
) -> Mapping[_Key, list[HeldDistribution]]:
    by_key: dict[_Key, list[HeldDistribution]] = {}
    for item in sorted(held, key=lambda item: (item.name, item.version, item.sha256 or "")):
        by_key.setdefault((item.name, item.backend if by_backend else ""), []).append(item)
    return by_key


def _is_comparable(before: Side, after: Side) -> bool:
    """True if the files of both sides come from the same kind of installer."""
    installed = ("image", "tree")
    return before.kind == after.kind or (before.kind in installed and after.kind in installed)


def _compare(
    key: _Key,
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
