"""BM107: no wheel of a distribution can be taken; its source says what it will be, or nothing does.

As long as a finding of this rule is a warning, the run is undecided
(`rules.severities.leaves_open`). A source is read and never built. Where its metadata are static,
nothing in it is built already and its build files name no accelerator, it is clean.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from buildmatrix.catalogue.lookup import library
from buildmatrix.index.model import SourceFacts
from buildmatrix.locks.model import Package
from buildmatrix.phrases import listing
from buildmatrix.rules.belonging import title
from buildmatrix.rules.findings import finding
from buildmatrix.rules.fixes import accept
from buildmatrix.rules.model import Finding, Fix, Verdict
from buildmatrix.rules.wheels import Wheels

#: How the address of a repository or an archive looks, as against that of a folder.
_FOREIGN = re.compile(r"[a-z]+\+|.*://|.*\.(?:zip|tar(?:\.\w+)?|tgz|tbz2?)(?:$|#)", re.IGNORECASE)


def check(wheels: Wheels) -> Iterator[Finding]:
    """One finding per distribution.

    A note where a build is what was asked for: by the specification, or by naming a folder of the
    user's own; and where the source says that it is clean.
    """
    judged = {verdict.name: verdict for verdict in source_verdicts(wheels)}
    for name, why in sorted(wheels.without_wheel.items()):
        package = wheels.packages.get(name)
        label = f"{name} {package.version if package is not None else ''}".rstrip()
        is_own = package is not None and _is_own(package)
        is_built = package is not None and not package.unknown and _is_built(package)
        holds = (
            "its contents are known only after it is built"
            if is_built
            else "its contents are not known"
        )
        source = wheels.sources.get(name)
        is_told = _is_told(wheels, name) or (
            package is not None and is_own and _is_read(package, wheels.askers)
        )
        verdict = judged.get(name)
        if verdict is not None:
            holds = verdict.reason
        elif isinstance(source, str):
            holds += f"; its source was not read: {source}"
        requires = "" if is_told else "; what it requires is not known yet, and is not judged here"
        advice = (
            f"ask for a version of {name} that has a wheel for this target, or look at the image "
            "with `buildmatrix scan`"
            if is_built
            else f"ask for a version and a file of {name} that the index has"
        )
        yield finding(
            "BM107",
            wheels,
            f"{label}: {why}; {holds}{requires}",
            severity="note"
            if is_own
            or name in wheels.target.no_binary
            or (verdict is not None and verdict.certain and is_told)
            else "warning",
            owner=f"{name}=={package.version if package is not None else ''}",
            chain=wheels.chain_to(name) or (label,),
            fix=Fix("pin", advice, accept("BM107", distribution=name)),
        )


def source_verdicts(wheels: Wheels) -> Iterator[Verdict]:
    """Yield the verdicts about distributions by their sources, if those were read."""
    for name in sorted(wheels.without_wheel):
        package, source = wheels.packages.get(name), wheels.sources.get(name)
        if package is None or not isinstance(source, SourceFacts):
            continue
        yield _verdict(wheels, package, source)


def _verdict(wheels: Wheels, package: Package, source: SourceFacts) -> Verdict:
    verdict = Verdict(package.name, package.version, wheels.backend, "ok", "")
    if source.built:
        reason = f"its source holds {listing(source.built)}, which was built elsewhere"
        return replace(verdict, reason=reason, certain=False, may_be="broken")
    traces = list(_traces(wheels, source))
    foreign = [
        trace for trace in traces if wheels.catalogue.vendor_of(trace[0]) not in _own(wheels)
    ]
    if foreign:
        names = listing(dict.fromkeys(title(backend, wheels.catalogue) for backend, _ in foreign))
        places = listing(dict.fromkeys(place for _, place in foreign))
        reason = f"its source is built for {names} where that is at hand ({places})"
        return replace(verdict, verdict="optional", reason=reason, certain=False, may_be="bloat")
    opened = [
        f"{library_name} ({path})"
        for library_name, path in source.libraries
        for match in library(library_name, None, wheels.catalogue)
        if match.weight == "strong" and match.owned.vendor not in _own(wheels)
    ]
    if opened:
        reason = f"its source names {listing(opened)}"
        return replace(verdict, verdict="optional", reason=reason, certain=False, may_be="broken")
    if not _is_told(wheels, package.name):
        reason = "its build decides what it requires"
        return replace(verdict, reason=reason, certain=False, may_be="bloat")
    reason = "by its source: nothing in it is built already"
    if traces:
        names = listing(dict.fromkeys(title(backend, wheels.catalogue) for backend, _ in traces))
        return replace(verdict, reason=f"{reason}, and its build files are for {names}")
    return replace(verdict, reason=f"{reason}, and its build files name no accelerator")


def _own(wheels: Wheels) -> tuple[str | None, ...]:
    """Return the vendors that are not foreign: the target's, and None."""
    return (None, wheels.own_vendor)


def _traces(wheels: Wheels, source: SourceFacts) -> Iterator[tuple[str, str]]:
    """Backends that a source is built for, with the files that say so."""
    suffixes = dict(source.suffixes)
    for owned in wheels.catalogue.source_traces:
        for suffix in owned.entry.suffixes:
            if suffix in suffixes:
                yield owned.backend, suffixes[suffix]
        for pattern in owned.entry.patterns:
            search = re.compile(pattern, re.IGNORECASE).search
            for path, text in source.build_files:
                if search(text):
                    yield owned.backend, path


def _is_told(wheels: Wheels, name: str) -> bool:
    """Return True if the requirements of a source are known, and so judged."""
    source, lock = wheels.sources.get(name), wheels.lock
    if name in wheels.askers or not isinstance(source, SourceFacts):
        return name in wheels.askers
    is_locked = lock is not None and not lock.inputs and not lock.is_completed
    return is_locked or source.requires is not None


def _is_built(package: Package) -> bool:
    return bool(package.source or package.source_only)


def _is_own(package: Package) -> bool:
    return bool(package.source) and _FOREIGN.match(package.source) is None


def _is_read(package: Package, askers: Collection[str]) -> bool:
    """Return True if a folder's requirements are known: lines of its project required something."""
    lines = posixpath.join(posixpath.normpath(package.source), "pyproject.toml:")
    return any(asker.startswith(lines) for asker in askers)
