"""Verdict about each installed distribution on one backend: ok, optional, bloat or broken.

- `broken`: an import loads, and fails without, a library that nothing provides (`judge.failing`).
- `bloat`: it belongs to another backend, requires a distribution of one, links a present library of
  one, or contains foreign bytes above the policy's threshold.
- `optional`: it loads foreign libraries only on request or if they are present, or contains few
  foreign bytes.
- `ok`: it has nothing foreign, or belongs to this backend with a small foreign part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.text import listing, size
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import DistributionMatch, Evidence
from buildmatrix.facts.inventory.model import Distribution
from buildmatrix.judge.evidence import HELD, PackedSizeRange, carry_failures, total
from buildmatrix.judge.failing import LOADER, absent_links, failure, needs_library
from buildmatrix.judge.model import UNFIT, Verdict, VerdictName
from buildmatrix.judge.tree import TreeView
from buildmatrix.locks.model import Lock

#: Libraries that draw windows; they indicate no accelerator.
_GRAPHICS = "graphics"


def verdicts(tree: TreeView) -> tuple[Verdict, ...]:
    """Return one verdict per installed distribution, sorted by name, by the tree's content alone.

    What rules say of names joins in `judge.judging`.
    """
    by_owner: dict[str, list[Evidence]] = {}
    for item in tree.evidence:
        if item.distribution is not None:
            by_owner.setdefault(item.distribution, []).append(item)
    alone = [
        _verdict(tree, item, by_owner.get(item.owner, []))
        for item in sorted(tree.inventory.distributions, key=lambda item: (item.name, item.path))
    ]
    carried = list(carry_failures(alone, tree.inventory.python_imports))
    return tuple(_pass_to_requirers(tree, carried))


class _Foreign(Struct, frozen=True):
    """Foreign parts of one distribution."""

    evidence: Sequence[Evidence]
    #: Its own names say that it is made for another backend, and for that one alone.
    belongs: Sequence[Evidence]
    #: Bytes of files and device code that are useless here, on disk.
    size: int
    #: The same as a wheel or a layer carries it, which the threshold is about: at least, at most.
    weight: int
    heaviest: int
    #: True if there may be more of it: not all binaries were read to their ends.
    is_incomplete: bool
    #: Its unconditional requirements, with their catalogue matches.
    required: Sequence[tuple[str, DistributionMatch]]


def _verdict(tree: TreeView, item: Distribution, evidence: Sequence[Evidence]) -> Verdict:
    match = distribution(item.name, item.version, tree.catalogue)
    strong = [part for part in evidence if part.weight == "strong" and tree.is_foreign(part)]
    welcome = match is not None and (
        match.kind == "multi-backend" or tree.backend in match.tolerated_in
    )
    # The bytes of a build that could be for anything decide, if any are known.
    standing = tree.standings.get(item.owner, "held")
    is_named = match is not None and (standing == "held" or not match.is_build)
    belongs = (
        [part for part in strong if part.kind == "declared"] if is_named and not welcome else []
    )
    shipped = [part for part in strong if part.kind in HELD]
    owner = item.owner
    foreign = _Foreign(
        evidence=strong,
        belongs=belongs,
        size=item.size if belongs else total(shipped),
        weight=total(replace(part, size=_packed_size(tree, part).least) for part in shipped),
        heaviest=total(replace(part, size=_packed_size(tree, part).most) for part in shipped),
        is_incomplete=owner in tree.incomplete,
        required=tuple(_foreign_requirements(tree, item)),
    )
    failed = failure(tree, owner, evidence)
    # An import that was not read may survive the failure.
    survives = failed is not None and owner in tree.unread_python
    broken: _Judgement | None = None
    if failed is not None and not survives:
        broken = "broken", failed.reason
    useless = [name for name, match in foreign.required if _is_useless(tree, name, match)]
    sure = broken or _driver(evidence) or _bloat(tree, match, foreign)
    verdict, reason = (
        sure
        or (("bloat", f"it requires {listing(useless)}") if useless else None)
        or (("optional", failed.reason) if failed is not None else None)
        or _judge_lost_links(tree, owner, evidence)
        or _own(tree, match)
        or _optional(tree, item, match, evidence, foreign)
        or ("ok", "nothing foreign is loaded, shipped or required")
    )
    may_be: VerdictName | None = None
    if survives and verdict not in UNFIT:
        may_be = "broken"
    elif foreign.heaviest > tree.policy.bloat_threshold and verdict not in UNFIT:
        # It comes in runs of some hundred pieces: if some was seen, there may well be more.
        may_be = "bloat"
    vendors = {part.vendor for part in strong} | {
        requirement.vendor for _, requirement in foreign.required
    }
    # Whose library the reason names, that one is meant.
    vendors |= {part.vendor for part in evidence if tree.is_foreign(part) and part.detail in reason}
    if failed is not None and failed.vendor:
        vendors.add(failed.vendor)
    return Verdict(
        name=item.name,
        version=item.version,
        backend=tree.backend,
        verdict=verdict,
        reason=reason,
        foreign_bytes=foreign.size,
        vendors=tuple(sorted(vendor for vendor in vendors if vendor is not None)),
        architectures=_architectures(evidence),
        by_others=sure is None and verdict == "bloat",
        failure=failed if broken is not None else None,
        certain=may_be is None,
        may_be=may_be,
    )


def _packed_size(tree: TreeView, evidence: Evidence) -> PackedSizeRange:
    carried = tree.carried.get(evidence.path) if evidence.kind == "device-code" else None
    if carried is None:
        return PackedSizeRange(evidence.size, evidence.size)
    # In a file with code of several vendors, each counts with its own.
    least = min(evidence.size, carried.least)
    return PackedSizeRange(least, least + carried.most - carried.least)


_Judgement = tuple[VerdictName, str]


def _driver(evidence: Sequence[Evidence]) -> _Judgement | None:
    """Judge a driver's library: it must not be installed, not even on its own backend."""
    shipped = [
        item.detail
        for item in evidence
        if item.where == "host" and item.kind in ("bundled", "tool") and item.weight == "strong"
    ]
    if not shipped:
        return None
    return "bloat", f"it ships {listing(shipped)}, which the host must provide"


def _bloat(tree: TreeView, match: DistributionMatch | None, foreign: _Foreign) -> _Judgement | None:
    if foreign.belongs and match is not None and match.needs_device:
        backend = tree.catalogue.title(match.backend)
        return "broken", f"it is only usable with a device of {backend}"
    if foreign.belongs:
        return "bloat", f"it belongs to {tree.catalogue.title(foreign.belongs[0].backend)}"
    if foreign.weight > tree.policy.bloat_threshold:
        backend = max(foreign.evidence, key=lambda evidence: evidence.size).backend
        bound = "at least " if foreign.is_incomplete else ""
        share = f"{bound}{size(foreign.size)} of it"
        return "bloat", f"{share} are for {tree.catalogue.title(backend)}"
    if match is not None and tree.backend in match.tolerated_in:
        return None
    for evidence in foreign.evidence:
        if evidence.kind == "needed" and (evidence.path, evidence.detail) in tree.elsewhere:
            return "bloat", (
                f"{evidence.path} loads {evidence.detail} of "
                f"{tree.catalogue.title(evidence.backend)}, which is there"
            )
    return None


def _judge_lost_links(
    tree: TreeView, owner: str, evidence: Sequence[Evidence]
) -> _Judgement | None:
    """Some of its files are for another toolkit line of this backend, and cannot be loaded."""
    lost = [link for link in absent_links(tree, owner, evidence) if tree.is_other_line(link.detail)]
    if not lost:
        return None
    names = listing(item.detail for item in lost)
    return "optional", (
        f"it works without {names}, of another line of {tree.catalogue.title(tree.backend)}, "
        f"which {lost[0].path} links and nothing provides"
    )


def _is_useless(tree: TreeView, name: str, match: DistributionMatch) -> bool:
    """Return True if a foreign requirement is certainly not usable here.

    A wheel alone does not say which build of a family would be installed; the files of an installed
    build show it.
    """
    if match.kind == "default-build":
        return not tree.is_single and f"{name}=={tree.installed.get(name)}" not in tree.held
    return match.kind != "multi-backend"


def useless_requirements(
    tree: TreeView, item: Distribution
) -> Iterator[tuple[str, DistributionMatch]]:
    """Return the unconditional requirements of `item` that are not usable on this backend."""
    required = _foreign_requirements(tree, item)
    return ((name, match) for name, match in required if _is_useless(tree, name, match))


def _foreign_requirements(
    tree: TreeView, item: Distribution
) -> Iterator[tuple[str, DistributionMatch]]:
    for name, match in tree.find_vendor_requirements(item.owner):
        if tree.is_foreign(match) and tree.backend not in match.tolerated_in:
            yield name, match


def _pass_to_requirers(tree: TreeView, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """Yield the verdicts; a build for another backend passes its own to its requirers."""
    bad = {verdict.name for verdict in verdicts if verdict.verdict in UNFIT}
    items = {(item.name, item.version): item for item in tree.inventory.distributions}
    for verdict in verdicts:
        builds = [
            name
            for name, match in _foreign_requirements(tree, items[verdict.name, verdict.version])
            if match.kind == "default-build" and name in bad
        ]
        if builds and verdict.name not in bad and not tree.is_single:
            verdict = replace(
                verdict, verdict="bloat", reason=f"it requires {listing(builds)}", by_others=True
            )
        yield verdict


def _own(tree: TreeView, match: DistributionMatch | None) -> _Judgement | None:
    """Return True for distributions made for, or expected on, this backend."""
    if match is None or match.vendor is None or match.kind == "embedded":
        return None
    if not tree.is_foreign(match):
        return "ok", f"it is made for {tree.catalogue.title(match.backend)}"
    if tree.backend in match.tolerated_in:
        return "ok", f"packages for {tree.backend} require it"
    return None


def _optional(
    tree: TreeView,
    item: Distribution,
    match: DistributionMatch | None,
    evidence: Sequence[Evidence],
    foreign: _Foreign,
) -> _Judgement | None:
    # Builds for the CPU have the Python code of the builds for accelerators; there it is dormant.
    dormant = "python-dlopen" if match is not None and match.vendor is None else None
    if foreign.size:
        bound = "at least" if foreign.is_incomplete else "only"
        return "optional", f"{bound} {size(foreign.size)} of it are foreign"
    # A distribution for this backend that uses a loader of all vendors' drivers has another way.
    serves = any(
        part.backend == tree.backend
        and part.weight == "strong"
        and part.kind in ("needed", "device-code")
        for part in evidence
    )
    opened = [
        part.detail
        for part in evidence
        if tree.is_foreign(part)
        and not (serves and part.role == LOADER)
        and part.kind not in ("declared", dormant)
        and part.role != _GRAPHICS
        and (part.weight == "strong" or part.confidence == "high")
    ]
    if opened:
        # A library that a wheel bundles and links is there under its name with a hash, too.
        once = [name for name in opened if not any(one.startswith(f"{name} (") for one in opened)]
        return "optional", f"it reaches for {listing(once)} when asked to"
    for used in tree.imports.get(item.owner, ()) if dormant is None else ():
        # Harmless distributions (by the catalogue) may look for other parts of their own vendor.
        own = match is not None and match.vendor == used.match.vendor
        if used.statement.how == "tried" and not own and needs_library(tree, used.match):
            name = used.statement.module.partition(".")[0]
            return "optional", f"it uses {name} where that is installed ({used.place})"
    several = [name for name, match in foreign.required if match.kind == "multi-backend"]
    if several:
        names = listing(several)
        return "optional", f"it requires {names}, which can use other backends too"
    return None


def _architectures(evidence: Sequence[Evidence]) -> Mapping[str, tuple[str, ...]]:
    """GPU architectures by vendor, of this backend's code and of others'."""
    by_vendor: dict[str, set[str]] = {}
    for item in evidence:
        if item.architectures:
            by_vendor.setdefault(item.vendor, set()).update(item.architectures)
    return {vendor: tuple(sorted(archs)) for vendor, archs in sorted(by_vendor.items())}


# Verdicts through requirements: a distribution that requires a foreign one is not clean


def pass_through_requirements(lock: Lock, verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Pass broken and bloated verdicts on to requirers.

    `Package.via` says who requires whom: markers and extras are decided there already. What is
    worst counts, and of equals the nearest.
    """
    by_name = {verdict.name: verdict for verdict in verdicts}
    requires: dict[str, list[str]] = {}
    for package in sorted(lock.packages, key=lambda package: package.name):
        for asker in package.via:
            requires.setdefault(asker, []).append(package.name)
    askers = {package.name: package.via for package in lock.packages}
    nearest = [_find_nearest(kind, by_name, requires, askers) for kind in reversed(UNFIT)]
    return tuple(_pass_on(verdict, nearest) for verdict in by_name.values())


class _Way(Struct, frozen=True):
    """The shortest way from a distribution to one with a bad verdict."""

    length: int
    #: Its first step, and its end.
    first: str
    worst: Verdict


def _find_nearest(
    kind: VerdictName,
    by_name: Mapping[str, Verdict],
    requires: Mapping[str, Sequence[str]],
    askers: Mapping[str, Sequence[str]],
) -> Mapping[str, _Way]:
    """Return the ways to the nearest verdicts `kind`, in linear time; none leads through a bad one.

    Of equally short ways the one whose names come first.
    """
    ways = {
        name: _Way(0, name, verdict) for name, verdict in by_name.items() if verdict.verdict == kind
    }
    queue = list(ways)
    for name in queue:  # grows while it is walked: the nearest first
        length = ways[name].length
        for asker in askers.get(name, ()):
            own = by_name.get(asker)
            if asker in ways or (own is not None and own.verdict in UNFIT):
                continue
            first = next(
                item for item in requires[asker] if item in ways and ways[item].length == length
            )
            ways[asker] = _Way(length + 1, first, ways[first].worst)
            queue.append(asker)
    return ways


def _pass_on(item: Verdict, nearest: Sequence[Mapping[str, _Way]]) -> Verdict:
    ways = (ways[item.name] for ways in nearest if item.name in ways)
    way = next(ways, None) if item.verdict not in UNFIT else None
    if way is None:
        return item
    worst = way.worst
    by = "" if way.first == worst.name else f" (via {way.first})"
    return replace(
        item,
        verdict=worst.verdict,
        reason=f"it requires {worst.name} {worst.version}{by}, which is "
        f"{worst.verdict} here: {worst.reason}",
        vendors=tuple(sorted({*item.vendors, *worst.vendors})),
        by_others=True,
    )
