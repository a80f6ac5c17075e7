"""Distributions with different versions in the targets of one specification.

Reasons for a difference: a build for one backend (a local version, an index of its own), a
distribution that belongs to a vendor, a replacement (`replace`), another Python or platform.
Everything else is drift: an unintended difference, so that targets run different code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from packaging.utils import canonicalize_name

from buildmatrix.base.errors import EXIT_FINDINGS, BuildmatrixError, most_severe
from buildmatrix.base.parsing import requirement_or_none, version_or_none
from buildmatrix.base.text import listing
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import WHOLE
from buildmatrix.judge.acceptance import FailOn
from buildmatrix.judge.subject import Subject, locked
from buildmatrix.locks.model import Lock, Package
from buildmatrix.matrix.model import Policy, Target
from buildmatrix.reports.diff import Drift, Drifts, ExplainedDrift, Pinned
from buildmatrix.sources.resolved import Resolved

#: Kinds of distributions whose versions are made for their own backend.
_OWN = (*WHOLE, "embedded")


class _TargetPackage(Struct, frozen=True):
    """A distribution on one target."""

    target: Target
    package: Package

    @property
    def version(self) -> str:
        return self.package.version

    @property
    def public(self) -> str:
        valid = version_or_none(self.version)
        return valid.public if valid is not None else self.version.partition("+")[0]


def find_drifts(
    locks: Sequence[tuple[Target, Lock]],
    catalogue: Catalogue,
    unresolved: Iterable[str] = (),
    stale: Iterable[str] = (),
) -> Drifts:
    """Return all version differences between the targets, with known reasons."""
    subjects = {target.id: locked(target, lock, catalogue, Policy()) for target, lock in locks}
    #: The index that serves most of a lock.
    usual: dict[str, str | None] = {}
    places: dict[str, list[_TargetPackage]] = {}
    for target, lock in locks:
        indexes = Counter(package.index for package in lock.packages)
        usual[target.id] = max(indexes, key=lambda it: (indexes[it], it or ""), default=None)
        for package in lock.packages:
            places.setdefault(package.name, []).append(_TargetPackage(target, package))
    bare: list[Drift] = []
    explained: list[ExplainedDrift] = []
    same = 0
    for name, held in places.items():
        if len({place.version for place in held}) < 2:
            same += 1
            continue
        pinned, reason = _pin_versions(held, subjects), _find_reason(held, catalogue, usual)
        if reason is None:
            bare.append(Drift(name, pinned))
        else:
            explained.append(ExplainedDrift(name, pinned, reason))
    explained += _find_replacements(places, locks, subjects)
    return Drifts(
        tuple(target.id for target, _ in locks),
        same,
        tuple(sorted(bare, key=lambda drift: drift.name)),
        tuple(sorted(explained, key=lambda explained_drift: explained_drift.name)),
        tuple(unresolved),
        tuple(stale),
    )


def _pin_versions(
    held: Sequence[_TargetPackage], subjects: Mapping[str, Subject]
) -> tuple[Pinned, ...]:
    groups: dict[tuple[str, str | None], list[_TargetPackage]] = {}
    for place in held:
        groups.setdefault((place.version, place.package.index), []).append(place)

    def requirers(place: _TargetPackage) -> dict[str, str]:
        """Map lines, and distributions in the version of the target, to those that require it."""
        packages = subjects[place.target.id].packages
        return {
            f"{asker} {packages[asker].version}" if asker in packages else asker: asker
            for asker in place.package.via
        }

    versions = []
    for (version, index), group in groups.items():
        name, subject = group[0].package.name, subjects[group[0].target.id]
        # A requirer common to all versions does not explain the difference.
        elsewhere = {text for item in held if item.version != version for text in requirers(item)}
        own = [asker for text, asker in requirers(group[0]).items() if text not in elsewhere]
        lines = [asker for asker in own if asker not in subject.packages]
        if not own:
            chain = subject.chain_to(name)
        else:
            start = (lines[0],) if lines else subject.chain_to(own[0])
            chain = (*start, f"{name} {version}")
        targets = tuple(item.target.id for item in group)
        versions.append(Pinned(version, index, targets, chain))
    return tuple(
        sorted(versions, key=lambda pinned: (-len(pinned.targets), pinned.version, pinned.targets))
    )


def _find_reason(
    held: Sequence[_TargetPackage], catalogue: Catalogue, usual: Mapping[str, str | None]
) -> str | None:
    machines: dict[tuple[str, str], list[_TargetPackage]] = {}
    for place in held:
        machines.setdefault((place.target.python, place.target.platform), []).append(place)
    torn = [group for group in machines.values() if len({item.version for item in group}) > 1]
    if not torn:
        # Each Python and platform has one version.
        pythons, platforms = (sorted(values) for values in map(set, zip(*machines, strict=True)))
        parts = [f"another Python ({listing(pythons)})"] if len(pythons) > 1 else []
        parts += [f"another platform ({listing(platforms)})"] if len(platforms) > 1 else []
        return " and ".join(parts)
    reasons = [_explain_backends(group, catalogue, usual) for group in torn]
    if None in reasons:
        return None
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))


def _explain_backends(
    held: Sequence[_TargetPackage], catalogue: Catalogue, usual: Mapping[str, str | None]
) -> str | None:
    """Return why targets with the same Python and platform have different versions, if known."""
    if len({place.public for place in held}) == 1:
        return "builds of one version for several backends"
    matches = [distribution(place.package.name, place.version, catalogue) for place in held]
    is_build = [match is not None and "+" in place.version
                for place, match in zip(held, matches, strict=True)]  # fmt: skip
    versions: dict[str | None, set[str]] = {}
    for place in held:
        versions.setdefault(place.package.index, set()).add(place.version)
    # Each index has served one version, so that the index makes the difference.
    follows_index = len(versions) > 1 and all(len(served) == 1 for served in versions.values())
    is_own = any(is_build) or any(_is_routed(place, usual) for place in held)
    if all(is_build) or (follows_index and is_own):
        return (
            "it comes from an index of each backend's own, and they do not have the same versions"
        )
    owners = [
        match
        for match in matches
        if match is not None
        and match.vendor is not None
        and match.weight != "neutral"
        and match.kind in _OWN
    ]
    if len(owners) == len(held):
        names = sorted({catalogue.title(match.backend) for match in owners})
        return f"it belongs to {listing(names)}"
    return None


def _is_routed(place: _TargetPackage, usual: Mapping[str, str | None]) -> bool:
    """True if the target takes it from another index than most of its packages."""
    index = place.package.index
    if index is None or not (place.target.torch or place.target.index):
        return False
    return index in place.target.index.values() or index != usual[place.target.id]


def _find_replacements(
    places: Mapping[str, Sequence[_TargetPackage]],
    locks: Sequence[tuple[Target, Lock]],
    subjects: Mapping[str, Subject],
) -> Iterator[ExplainedDrift]:
    """Yield replacements used on some targets whose version differs from the original's."""
    seen = set[tuple[str, str]]()
    for target, _ in locks:
        for original, line in target.replace.items():
            requirement, name = requirement_or_none(line), canonicalize_name(original)
            twin = canonicalize_name(requirement.name) if requirement is not None else name
            if (name, twin) in seen or name == twin:
                continue
            seen.add((name, twin))
            if name not in places or twin not in places:
                continue
            if len({place.public for place in (*places[name], *places[twin])}) < 2:
                continue
            pinned = *_pin_versions(places[name], subjects), *_pin_versions(places[twin], subjects)
            reason = f"{twin} stands for {name} there (`replace`)"
            yield ExplainedDrift(f"{name} / {twin}", pinned, reason)


def compare_targets(
    outcomes: Sequence[Resolved | BuildmatrixError], catalogue: Sequence[Path] = ()
) -> Drifts:
    """Return distributions with different versions in the targets that could be resolved.

    `catalogue` are the user's own data files for it.
    """
    resolved = [item for item in outcomes if isinstance(item, Resolved)]
    errors = tuple(error.message for error in outcomes if isinstance(error, BuildmatrixError))
    stale = tuple(f"{item.target.id}: {item.stale}" for item in resolved if item.stale)
    return find_drifts(
        [(item.target, item.lock) for item in resolved], load(tuple(catalogue)), errors, stale
    )


def exit_code(
    drifts: Drifts, outcomes: Sequence[Resolved | BuildmatrixError], fail_on: FailOn
) -> int:
    """Return the exit code: drift is a warning; an unresolved target has its error's code."""
    codes = [error.exit_code for error in outcomes if isinstance(error, BuildmatrixError)]
    if fail_on in ("warning", "note") and drifts.drift:
        codes.append(EXIT_FINDINGS)
    return most_severe(codes)
