"""Rules about a lock as a whole and about outdated files: BM106, BM111 and BM903."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import PurePath

from buildmatrix.base.data import replace
from buildmatrix.base.parsing import parse_version, version_or_none
from buildmatrix.base.text import count, listing, shown
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import WHOLE, DistributionMatch, Evidence, demangle
from buildmatrix.facts.inventory.conda import CONDA_PREFIX
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.loader import Resolution, resolve
from buildmatrix.judge import fixes
from buildmatrix.judge.distributions import is_by_local_version
from buildmatrix.judge.findings import finding, fingerprint
from buildmatrix.judge.fixes import accept
from buildmatrix.judge.model import (
    Acceptance,
    Advisories,
    Advisory,
    Finding,
    Fix,
    PinAnswer,
    Unchecked,
)
from buildmatrix.judge.subject import ImageSubject, LinkedFiles, Present, Subject, locked_packages
from buildmatrix.locks.model import CondaPackage, Lock, Package, SourceFacts, Staleness
from buildmatrix.locks.requires import find_unmet
from buildmatrix.locks.selection import installed_environment
from buildmatrix.matrix.model import AcceptedAdvisory, Policy, Target

# Locked wheels as a subject


@dataclass(frozen=True)
class Wheels(ImageSubject):
    """One target whose locked wheels were read, some of them in part, without a base image."""

    #: Reason if the lock does not match its inputs.
    stale: Staleness | None
    #: Distributions without a usable wheel, with the reason.
    without_wheel: Mapping[str, str]
    #: Facts of source distributions that were read, or why they were not, by distribution.
    sources: Mapping[str, SourceFacts | str]
    #: The files with tables that were read of single libraries; None where there are none.
    with_tables: LinkedFiles | None = None

    def is_from_known_channel(self, name: str) -> bool:
        """Return True for a package of conda whose name and build say whose it is."""
        package = self.packages.get(name)
        return isinstance(package, CondaPackage) and is_from_known_channel(package, self.catalogue)

    @property
    def linked(self) -> LinkedFiles:
        """See `ImageSubject.linked`."""
        return self.with_tables or super().linked

    @property
    def noun(self) -> str:
        """See `ImageSubject.noun`."""
        return "this lock"


def wheels(
    target: Target,
    inventory: Inventory,
    evidence: Sequence[Evidence],
    lock: Lock,
    catalogue: Catalogue,
    policy: Policy,
    *,
    downloads: Mapping[str, int],
    stale: Staleness | None = None,
    without_wheel: Mapping[str, str] | None = None,
    sources: Mapping[str, SourceFacts | str] | None = None,
    resolution: Resolution | None = None,
    with_tables: LinkedFiles | None = None,
) -> Wheels:
    """The target as the wheels of its lock make it. `downloads` are their bytes, by name."""
    return Wheels(
        target,
        catalogue.on(target.platform),
        policy,
        lock,
        locked_packages(target, lock, lambda package: downloads.get(package.name)),
        inventory,
        tuple(evidence),
        resolution or resolve_wheels(inventory),
        stale,
        without_wheel or {},
        sources or {},
        with_tables,
    )


def resolve_wheels(inventory: Inventory) -> Resolution:
    """Resolve NEEDED entries among wheels, some of whose files were not opened.

    The loader model knows the files that were opened; a closed one answers to its file name.
    """
    resolution = resolve(inventory)
    wanted = {needed.name for needed in resolution.needed if needed.path is None}
    closed: dict[str, list[str]] = {}
    for file in inventory.closed:
        name = file.path.rpartition("/")[2]
        for wanted_name in {name, demangle(name)} & wanted:
            closed.setdefault(wanted_name, []).append(file.path)
    entries = (
        replace(needed, anywhere=(*needed.anywhere, *closed[needed.name]))
        if needed.path is None and needed.name in closed
        else needed
        for needed in resolution.needed
    )
    return replace(resolution, needed=tuple(entries))


def known_conda_packages(lock: Lock, catalogue: Catalogue) -> tuple[Package, ...]:
    """Return the packages of conda that name, build or requirements say enough of.

    Of one that is only requested and has builds for several vendors, a channel may have another
    than the index has. One that others require and the lock lacks, as `__cuda`, counts if it is a
    vendor's.
    """
    return tuple(
        package
        for package in lock.conda
        if (isinstance(package, CondaPackage) and package.file is not None)
        or (
            (match := distribution(package.name, package.version, catalogue)) is not None
            and match.kind in WHOLE
        )
    )


def is_from_known_channel(package: CondaPackage, catalogue: Catalogue) -> bool:
    """Return True if packages of its channel show in name, build or requirements whose they are."""
    return package.index is not None and bool(catalogue.channels.find(package.index))


def with_conda_packages(lock: Lock, conda: Iterable[Package], catalogue: Catalogue) -> Lock:
    """Return the lock with conda packages, which may install distributions of other names."""
    names = {package.name for package in conda}
    others = (package for package in lock.packages if package.name not in names)
    plain = (name.removeprefix(CONDA_PREFIX) for name in names)
    provided = {catalogue.conda[name] for name in plain if name in catalogue.conda}
    decided = lock.decided | provided
    return replace(lock, packages=(*others, *conda), decided=decided) if names else lock


# BM106: a lock is older than its inputs


#: Locks of other tools, and what makes them.
_COMMANDS = {
    "uv.lock": "uv lock",
    "poetry.lock": "poetry lock",
    "Pipfile.lock": "pipenv lock",
    "pixi.lock": "pixi lock",
}


def check_stale_lock(wheels: Wheels) -> Iterator[Finding]:
    """At most one finding."""
    if wheels.stale is None:
        return
    fits = "does not fit" if wheels.stale.is_proven else "may not fit"
    path = PurePath(wheels.target.lock_file)
    command = _COMMANDS.get(path.name)
    if command is None and path.name.startswith("pylock.") and wheels.target.project:
        command = "buildmatrix lock"
    again = f"run `{command}`" if command else "lock again with the tool that made it"
    yield finding(
        "BM106",
        wheels,
        f"the lock {fits} its inputs, and the lock decides what is installed: {wheels.stale}",
        severity=None if wheels.stale.is_proven else "warning",
        path=wheels.target.lock_file or (wheels.lock.path.name if wheels.lock is not None else ""),
        fix=Fix("upgrade", f"{again}, and commit the result"),
    )


def merge_stale_locks(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding of this rule for each cause, where several targets have it; others as they are.

    A requirements file that changed makes the locks of all targets stale, and one command cures it.
    """
    kept: list[Finding] = []
    alike: dict[object, list[Finding]] = {}
    for item in findings:
        if item.rule != "BM106":
            kept.append(item)
            continue
        key = (
            item.message,
            item.severity,
            item.waived,
            item.fix.text if item.fix is not None else "",
        )
        alike.setdefault(key, []).append(item)
    for first, *others in alike.values():
        also = tuple(other.target for other in others)
        more = f"; the same holds for {listing(also)}" if also else ""
        kept.append(replace(first, message=first.message + more, also=also))
    return tuple(kept)


# BM111: a locked wheel requires a distribution that the lock lacks or has in another version.
#
# Installers take a lock as it is; `uv pip check` reports this only after installation.


def check_missing_requirement(wheels: Wheels) -> Iterator[Finding]:
    """One finding per distribution that is required; none for locks that buildmatrix resolved."""
    lock = wheels.lock
    if lock is None or lock.inputs:
        return
    askers: dict[str, dict[str, str]] = {}
    environment = installed_environment(wheels.target)
    for asker, need in find_unmet(lock, wheels.inventory.distributions, environment):
        line = need.line.partition(";")[0].strip()
        askers.setdefault(need.name, {}).setdefault(asker, line)
    for name, lines in sorted(askers.items()):
        present = wheels.packages.get(name)
        first = wheels.packages[next(iter(lines))]
        has = f"has {name} {present.version}" if present is not None else "lacks it"
        said = (f"{wheels.packages[asker].name} {wheels.packages[asker].version} requires {line}"
                for asker, line in lines.items())  # fmt: skip
        yield finding(
            "BM111",
            wheels,
            f"{shown(listing(said, 3, '; '))}, and this lock {has}",
            owner=f"{first.name}=={first.version}",
            chain=(*(wheels.chain_to(first.name)), shown(next(iter(lines.values())))),
            fix=Fix(
                "upgrade",
                "lock again with the tool that made the lock; what the project overrides on "
                "purpose, accept with a [[waive]]",
                accept("BM111", distribution=first.name),
            ),
            identity=name,
        )


# BM903: a committed generated file differs from the output of `buildmatrix generate`


def check_generated_file_out_of_date(paths: Iterable[str]) -> tuple[Finding, ...]:
    """One finding per path that `commands.build` names; they belong to no target."""
    return tuple(
        finding(
            "BM903",
            None,
            f"{path} in git differs from what the specification and the locks generate",
            path=path,
            fix=Fix("rebuild", "run `buildmatrix generate`, and commit what it writes"),
            by_path=True,
        )
        for path in sorted(paths)
    )


# BM801: a distribution has known vulnerabilities


_MOST_ADVISORIES = 6


def check_known_vulnerability(
    subject: Subject, advisories: Advisories, today: date
) -> Iterator[Finding]:
    """One finding per distribution, with all of its advisories.

    Those that the specification ignores do not count; where none is left, the finding is waived.
    """
    policy = subject.policy.vulnerabilities
    matches = {present.name: match for present, match in subject.matches}
    for present in subject.present:
        answer = advisories.answers.get((present.name, present.version))
        if answer is None or not answer.advisories:
            continue
        valid = [entry for entry in policy.ignore if today <= entry.expires]
        ignored = [
            (advisory, next((entry for entry in valid if entry.id in advisory.names), None))
            for advisory in answer.advisories
        ]
        left = tuple(advisory for advisory, entry in ignored if entry is None)
        entries = [entry for _, entry in ignored if entry is not None]
        reasons = [f"{entry.id}: {entry.reason}" for entry in entries]
        late = [
            entry
            for entry in policy.ignore
            if entry not in valid and any(entry.id in advisory.names for advisory in left)
        ]
        shown = left or answer.advisories
        item = finding(
            "BM801",
            subject,
            _vulnerability_message(present, answer, shown, reasons if left else (), late),
            severity=policy.severity,
            owner=present.owner,
            fix=_vulnerability_fix(subject, present, matches.get(present.name), shown),
        )
        if not left:
            expires = min(entry.expires for entry in entries).isoformat()
            reason = listing(reasons)
            accepted = Acceptance(by="advisory", reason=reason, expires=expires)
            item = replace(item, waived=reason, acceptance=accepted)
        # A baseline must not cover an advisory that is published tomorrow.
        flaws = ",".join(sorted(advisory.identity for advisory in shown))
        identity = fingerprint(item.rule, item.backend, item.distribution, None, flaws)
        yield replace(item, advisories=shown, fingerprint=identity)


def _vulnerability_message(
    present: Present,
    answer: PinAnswer,
    advisories: Collection[Advisory],
    ignored: Collection[str],
    late: Collection[AcceptedAdvisory],
) -> str:
    names = listing(
        (
            f"{advisory.id} "
            + (f"(fixed in {', '.join(advisory.fixed)})" if advisory.fixed else "(no fix yet)")
            for advisory in advisories
        ),
        _MOST_ADVISORIES,
    )
    alias = f" (asked as {answer.version})" if answer.version != present.version else ""
    noun = "known vulnerability" if len(advisories) == 1 else "known vulnerabilities"
    parts = [f"{present}{alias} has {len(advisories)} {noun}: {names}"]
    if ignored:
        parts.append(f"{count(len(ignored), 'other')} ignored, {listing(ignored)}")
    parts += [
        f"{accepted.id} was ignored until {accepted.expires.isoformat()}" for accepted in late
    ]
    return "; ".join(parts)


def _vulnerability_fix(
    subject: Subject,
    present: Present,
    match: DistributionMatch | None,
    advisories: Iterable[Advisory],
) -> Fix:
    # The distribution, not only this build of it, belongs to another backend.
    if (
        match is not None
        and subject.is_foreign(match)
        and subject.backend not in match.tolerated_in
        and match.weight == "strong"
        and match.kind in WHOLE
        and not is_by_local_version(match)
    ):
        way = fixes.fix(subject, present.name, present.version, "BM801")
        owner = subject.catalogue.title(match.backend)
        text = f"do not upgrade it, remove it: it belongs to {owner}; {way.text}"
        return Fix("remove", text, way.patch)
    version = find_fixed_version(present.version, advisories)
    if version is None:
        return Fix(
            "waive",
            f"no version without them is known yet: do without {present.name}, or accept them, "
            "each by its ID, under `ignore` in [policy.vulnerabilities]",
        )
    line = f"{present.name}>={version}"
    return Fix(
        "upgrade", f"require `{line}`, the nearest version without them, and lock again", line
    )


def find_fixed_version(installed: str, advisories: Iterable[Advisory]) -> str | None:
    """The lowest version above `installed` that none of the advisories is about, as far as known.

    Of each advisory the nearest fixed version counts (there is one per maintained branch), of all
    of them the highest. None where one of them has none.
    """
    current = version_or_none(installed)
    nearest = []
    for advisory in advisories:
        fixed = [version for version in map(version_or_none, advisory.fixed) if version is not None]
        above = [v for v in fixed if current is not None and v > parse_version(current.public)]
        if not above:
            return None
        nearest.append(min(above))
    return str(max(nearest)) if nearest else None


# BM802: a distribution could not be checked for known vulnerabilities


def check_not_checked(subject: Subject, advisories: Advisories) -> Iterator[Finding]:
    """One finding for all that the service failed for, and one for each that it does not know."""
    failed: list[tuple[Present, Unchecked]] = []
    for present in subject.present:
        unchecked = advisories.unchecked.get((present.name, present.version))
        if unchecked is None:
            continue
        if unchecked.cause == "service":
            failed.append((present, unchecked))
            continue
        advice = f"if no advisories are published about {present.name}, accept it with a [[waive]]"
        yield finding(
            "BM802",
            subject,
            f"{present} could not be checked for known vulnerabilities by {advisories.service}: "
            f"{unchecked.reason}",
            owner=present.owner,
            fix=Fix("waive", advice, accept("BM802", distribution=present.name)),
        )
    if not failed:
        return
    outcome = f"{listing(present.name for present, _ in failed)} could not"
    if len(failed) == len(subject.present):
        outcome = f"none of {count(len(failed), 'distribution')} could"
    reasons = listing((unchecked.reason for _, unchecked in failed), 2)
    yield finding(
        "BM802",
        subject,
        f"{outcome} be checked for known vulnerabilities by {advisories.service}: {reasons}",
        fix=Fix(
            "waive",
            "run again when the service answers, configure another one in "
            "[policy.vulnerabilities], or skip the check with --no-vulnerabilities",
        ),
    )
