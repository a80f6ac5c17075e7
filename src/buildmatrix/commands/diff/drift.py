"""Distributions with different versions in the targets of one specification.

Reasons for a difference: a build for one backend (a local version, an index of its own), a
distribution that belongs to a vendor, a replacement (`replace`), another Python or platform.
Everything else is drift: an unintended difference, so that targets run different code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from buildmatrix.base.errors import EXIT_FINDINGS, BuildmatrixError, most_severe
from buildmatrix.base.parsing import requirement_or_none, version_or_none
from buildmatrix.base.text import listing
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import DistributionMatch
from buildmatrix.judge.acceptance import FailOn
from buildmatrix.judge.evidence import title
from buildmatrix.judge.subject import Subject, locked
from buildmatrix.locks.model import Lock, Package
from buildmatrix.matrix.model import Policy, Target
from buildmatrix.reports.diff.drift import Drift, Drifts, ExplainedDrift, Pinned
from buildmatrix.sources.resolved import Resolved

#: Kinds of distributions whose versions are made for their own backend.
_OWN = ("native", "pure", "meta", "embedded")


@dataclass(frozen=True, slots=True)
class _TargetPackage:
    """A distribution on one target."""

    target: Target
    package: Package

    @property
    def version(self) -> str:
        return self.package.version

    @property
    def public(self) -> str:
        return _public_version(self.package.version)

    @property
    def machine(self) -> tuple[str, str]:
        return self.target.python, self.target.platform


def find_drifts(
    locks: Sequence[tuple[Target, Lock]],
    catalogue: Catalogue,
    unresolved: Iterable[str] = (),
    stale: Iterable[str] = (),
) -> Drifts:
    """Return all version differences between the targets, with known reasons."""
    subjects = {target.id: locked(target, lock, catalogue, Policy()) for target, lock in locks}
    usual = {target.id: _find_usual_index(lock) for target, lock in locks}
    places: dict[str, list[_TargetPackage]] = {}
    for target, lock in locks:
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
    versions = [
        Pinned(
            version,
            index,
            tuple(item.target.id for item in group),
            _make_chain(
                group[0],
                _find_requirers([item for item in held if item.version != version], subjects),
                subjects,
            ),
        )
        for (version, index), group in groups.items()
    ]
    return tuple(
        sorted(versions, key=lambda pinned: (-len(pinned.targets), pinned.version, pinned.targets))
    )


def _make_chain(
    place: _TargetPackage, elsewhere: Collection[str], subjects: Mapping[str, Subject]
) -> tuple[str, ...]:
    """Return the chain from a requirement line, through requirers specific to this version.

    A requirer common to all versions does not explain the difference.
    """
    name = place.package.name
    subject = subjects[place.target.id]
    askers = {_make_token(asker, subject): asker for asker in place.package.via}
    own = [asker for token, asker in askers.items() if token not in elsewhere]
    if not own:
        return subject.chain_to(name)
    lines = [asker for asker in own if asker not in subject.packages]
    start = (lines[0],) if lines else subject.chain_to(own[0])
    return (*start, f"{name} {place.version}")


def _find_requirers(places: Iterable[_TargetPackage], subjects: Mapping[str, Subject]) -> set[str]:
    return {
        _make_token(asker, subjects[place.target.id])
        for place in places
        for asker in place.package.via
    }


def _make_token(asker: str, subject: Subject) -> str:
    """Return a requirement line, or a distribution in the target's version."""
    package = subject.packages.get(asker)
    return asker if package is None else f"{asker} {package.version}"


def _find_usual_index(lock: Lock) -> str | None:
    """Return the index that serves most of a lock."""
    counted = Counter(package.index for package in lock.packages)
    return max(counted, key=lambda index: (counted[index], index or ""), default=None)


def _find_reason(
    held: Sequence[_TargetPackage], catalogue: Catalogue, usual: Mapping[str, str | None]
) -> str | None:
    machines: dict[tuple[str, str], list[_TargetPackage]] = {}
    for place in held:
        machines.setdefault(place.machine, []).append(place)
    torn = [group for group in machines.values() if len({item.version for item in group}) > 1]
    if not torn:
        return _explain_machines(held)
    reasons = [_explain_backends(group, catalogue, usual) for group in torn]
    if None in reasons:
        return None
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))


def _explain_machines(held: Sequence[_TargetPackage]) -> str:
    """Explain a difference if each Python and platform has one version."""
    pythons = {place.target.python for place in held}
    platforms = {place.target.platform for place in held}
    parts = [
        *([f"another Python ({listing(sorted(pythons))})"] if len(pythons) > 1 else []),
        *([f"another platform ({listing(sorted(platforms))})"] if len(platforms) > 1 else []),
    ]
    return " and ".join(parts)


def _explain_backends(
    held: Sequence[_TargetPackage], catalogue: Catalogue, usual: Mapping[str, str | None]
) -> str | None:
    """Return why targets with the same Python and platform have different versions, if known."""
    if len({place.public for place in held}) == 1:
        return "builds of one version for several backends"
    matches = [distribution(place.package.name, place.version, catalogue) for place in held]
    is_build = [match is not None and "+" in place.version
                for place, match in zip(held, matches, strict=True)]  # fmt: skip
    is_routed = [_is_routed(place, usual) for place in held]
    indexes = {place.package.index for place in held}
    if all(is_build) or (
        len(indexes) > 1 and (any(is_build) or any(is_routed)) and _follows_index(held)
    ):
        return (
            "it comes from an index of each backend's own, and they do not have the same versions"
        )
    owners = [match for match in matches if match is not None and _is_backend_specific(match)]
    if len(owners) == len(held):
        names = sorted({title(match.backend, catalogue) for match in owners})
        return f"it belongs to {listing(names)}"
    return None


def _is_routed(place: _TargetPackage, usual: Mapping[str, str | None]) -> bool:
    """True if the target takes it from another index than most of its packages."""
    index = place.package.index
    if index is None or not (place.target.torch or place.target.index):
        return False
    return index in place.target.index.values() or index != usual[place.target.id]


def _is_backend_specific(match: DistributionMatch) -> bool:
    return match.vendor is not None and match.weight != "neutral" and match.kind in _OWN


def _follows_index(held: Sequence[_TargetPackage]) -> bool:
    """True if each index has served one version, so that the index makes the difference."""
    versions: dict[str | None, set[str]] = {}
    for place in held:
        versions.setdefault(place.package.index, set()).add(place.version)
    return all(len(version) == 1 for version in versions.values())


def _find_replacements(
    places: Mapping[str, Sequence[_TargetPackage]],
    locks: Sequence[tuple[Target, Lock]],
    subjects: Mapping[str, Subject],
) -> Iterator[ExplainedDrift]:
    """Yield replacements used on some targets whose version differs from the original's."""
    seen = set[tuple[str, str]]()
    for target, _ in locks:
        for original, line in target.replace.items():
            twin, name = _parse_name(line), canonicalize_name(original)
            if twin is None or (name, twin) in seen or name == twin:
                continue
            seen.add((name, twin))
            held = [*places.get(name, ()), *places.get(twin, ())]
            if (
                len({place.package.name for place in held}) < 2
                or len({place.public for place in held}) < 2
            ):
                continue
            pinned = (
                *_pin_versions(places[name], subjects),
                *_pin_versions(places[twin], subjects),
            )
            reason = f"{twin} stands for {name} there (`replace`)"
            yield ExplainedDrift(f"{name} / {twin}", pinned, reason)


def _parse_name(line: str) -> str | None:
    requirement = requirement_or_none(line)
    return canonicalize_name(requirement.name) if requirement is not None else None


def _public_version(version: str) -> str:
    valid = version_or_none(version)
    return valid.public if valid is not None else version.partition("+")[0]


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
