"""One target of an audit: its wheels, their sizes and their findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from buildmatrix.base.data import replace
from buildmatrix.base.text import listing
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.audit_symbols import Edge, add_tables
from buildmatrix.facts.inventory.model import Artefact, Binary, Inventory, Unread
from buildmatrix.facts.loader import Resolution
from buildmatrix.judge.certainty import (
    Gain,
    Unopened,
    describe_open_rest,
    gains,
    may_be,
    name_unparsed_python,
    unopened,
)
from buildmatrix.judge.composing import compose
from buildmatrix.judge.composition import Composition
from buildmatrix.judge.evidence import HELD
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.locks import (
    Wheels,
    is_from_known_channel,
    known_conda_packages,
    resolve_wheels,
    wheels,
    with_conda_packages,
)
from buildmatrix.judge.model import AuditTotals, Finding, Verdict
from buildmatrix.judge.subject import LinkedFiles
from buildmatrix.judge.unread import (
    Unanswered,
    list_unknown,
    note_unanswered,
    source_verdicts,
    unread_rests,
)
from buildmatrix.locks.conda_packages import conda_distributions, is_conda_file
from buildmatrix.locks.index.model import WheelFacts
from buildmatrix.locks.index.reading import Readings, key
from buildmatrix.locks.index.wheels import local_path
from buildmatrix.locks.model import CondaPackage, Lock, LockedFile, Package
from buildmatrix.locks.requires import add_askers, find_missing
from buildmatrix.locks.selection import installed_environment, marker_environment
from buildmatrix.sources.resolved import Resolved
from buildmatrix.sources.wheels_on_index import MergedPaths, chosen_wheels, merge


class Merged(Struct, frozen=True):
    """A set of wheels as installed, with the facts that do not depend on a backend."""

    inventory: Inventory
    evidence: tuple[Evidence, ...]
    resolution: Resolution


class AuditedTarget(Struct, frozen=True):
    """Results of the rules for one target; policy, waivers and baseline are applied at the end."""

    #: Those of its lock, with what wheels and source distributions add.
    packages: tuple[Package, ...] = ()
    findings: tuple[Finding, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    totals: AuditTotals = field(default_factory=AuditTotals)
    composition: Composition | None = None


class AuditWork(Struct):
    """One target on its way through an audit."""

    resolved: Resolved
    #: The wheel that an installer takes, by distribution; why none is taken, for the others.
    wheels: Mapping[str, LockedFile]
    without_wheel: Mapping[str, str]
    audited: AuditedTarget = AuditedTarget()
    #: Additions of an installer or another package manager, as unread entries.
    added: tuple[Unread, ...] = ()
    #: Distributions of which more could be known.
    gains: Mapping[str, Gain] = field(default_factory=dict)
    #: Its wheels whose symbols are looked up in each other; see `commands.audit_symbols`.
    edges: tuple[Edge, ...] = ()
    #: Its files with tables that were read of single libraries, and what they were made from.
    linked: LinkedFiles | None = None
    linked_from: object = None

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys that identify its wheels."""
        return tuple(key(wheel) for wheel in self.wheels.values())

    def facts(self, readings: Readings) -> dict[str, WheelFacts]:
        """The facts of its wheels that were read, by distribution."""
        return {
            name: readings.facts[key(wheel)]
            for name, wheel in self.wheels.items()
            if key(wheel) in readings.facts
        }


def start(resolved: Resolved) -> AuditWork:
    """One target before anything of it was read."""
    chosen = chosen_wheels(resolved)
    files = {
        package.name: _make_absolute(package.file, resolved.lock.path)
        for package in _find_conda_files(resolved.lock)
        if package.file is not None and package.file.url
    }
    return AuditWork(resolved, {**chosen.wheels, **files}, chosen.without_wheel)


class Merger:
    """Merges wheels, once per set of them: most backends share theirs."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._merged_sets: dict[tuple[tuple[str, str], ...], Merged] = {}
        self._paths: dict[tuple[str, ...], MergedPaths] = {}

    def merged(self, work: AuditWork, readings: Readings) -> Merged:
        """The wheels of a target, as far as they were read."""
        names = [item for item in work.keys if item in readings.facts]
        parts = [readings.facts[item] for item in names]
        identity = tuple((name, readings.facts[name].depth) for name in names)
        unread = tuple(list_failures(work.wheels.values(), readings))
        merged = self._merged_sets.get(identity)
        if merged is None:
            paths = self._paths.setdefault(tuple(names), MergedPaths())
            inventory = merge(
                [wheel_facts.inventory for wheel_facts in parts],
                [wheel_facts.members for wheel_facts in parts],
                paths,
            )
            merged = Merged(inventory, self._judge.evidence(inventory), resolve_wheels(inventory))
            self._merged_sets[identity] = merged
        if not unread:
            return merged
        return replace(
            merged, inventory=replace(merged.inventory, unread=(*merged.inventory.unread, *unread))
        )

    def forget(self) -> None:
        """Free the facts of wheels that are about to be read further."""
        self._merged_sets.clear()


def link_tables(work: AuditWork, readings: Readings, merger: Merger) -> None:
    """Put what was read of single libraries to what else is known of a target's files.

    Tables that another target of the run asks for say nothing here.
    """
    if not work.edges:
        return
    inventory = merger.merged(work, readings).inventory
    tables_read = {
        (f"{name}=={item.version}", path): tables.elf
        for name, wheel_facts in work.facts(readings).items()
        for item in wheel_facts.inventory.distributions
        if item.name == name and "/" not in item.path
        for path, tables in readings.tables.get(key(work.wheels[name]), {}).items()
    }
    if work.linked_from != (inventory, tables_read):
        work.linked_from = inventory, tables_read
        work.linked = add_tables(inventory, tables_read)


def judge_target(work: AuditWork, readings: Readings, merger: Merger, judge: Judge) -> None:
    """Judge a target by the bytes read until now."""
    target, lock = work.resolved.target, work.resolved.lock
    facts = work.facts(readings)
    unread = {
        name: wheel.size
        for name, wheel in work.wheels.items()
        if name not in facts and wheel.size is not None
    }
    merged = merger.merged(work, readings)
    environment = marker_environment(target)
    lock = add_askers(lock, merged.inventory.distributions, environment)
    unanswered = tuple(_find_unanswered(work, readings, judge.catalogue))
    work.added = (*lock.unread, *list_unknown(unanswered))
    if lock.is_completed:
        late = installed_environment(target)
        work.added += tuple(
            Unread(
                name,
                f"it requires {listing(required)}, which the file does not pin for this platform: "
                "an installer adds them, and they were not judged; pin the file again for this "
                "platform",
            )
            for name, required in find_missing(lock, merged.inventory.distributions, late).items()
        )
    link_tables(work, readings, merger)
    known_unread = merged.inventory.unread
    merged = replace(
        merged, inventory=replace(merged.inventory, unread=(*known_unread, *work.added))
    )
    work.resolved = replace(work.resolved, lock=lock)
    conda = known_conda_packages(lock, judge.catalogue)
    merged = _add_conda(merged, conda, judge)
    subject = wheels(
        target,
        merged.inventory,
        merged.evidence,
        with_conda_packages(lock, conda, judge.catalogue),
        judge.catalogue,
        judge.policy,
        downloads=unread | {name: wheel_facts.size for name, wheel_facts in facts.items()},
        stale=work.resolved.stale,
        without_wheel=work.without_wheel,
        sources={
            package.name: readings.sources[key(package.sdist)]
            for package in lock.packages
            if package.sdist is not None and key(package.sdist) in readings.sources
        },
        resolution=merged.resolution,
        with_tables=work.linked,
    )
    findings, verdicts = judge.wheels(subject)
    left_open = unopened(subject)
    work.gains = gains(subject, {verdict.name: verdict for verdict in verdicts})
    deepened = name_unparsed_python(
        (_with_depth(verdict, left_open, work.gains, facts) for verdict in verdicts),
        merged.inventory,
    )
    weighed, totals = weigh(subject, (*deepened, *source_verdicts(subject)), facts, unread)
    hidden = unread_rests(subject, weighed, left_open, totals.download)
    installed = {
        name: sum(member.size for member in wheel_facts.members)
        for name, wheel_facts in facts.items()
    }
    composition = compose(subject, weighed, installed)
    findings += (*hidden, *note_unanswered(subject, unanswered))
    work.audited = AuditedTarget(lock.packages, findings, weighed, totals, composition)


# Packages of conda


def _find_conda_files(lock: Lock) -> Iterator[CondaPackage]:
    """Yield the packages of conda that are files."""
    for package in lock.conda:
        if isinstance(package, CondaPackage) and package.file is not None and not package.source:
            yield package


def _make_absolute(file: LockedFile, lock: Path) -> LockedFile:
    """Return a file whose path is relative to its lock with one that is not."""
    path = local_path(file.url)
    if path is None or path.is_absolute():
        return file
    return replace(file, url=str(lock.parent.absolute() / path))


def list_failures(files: Iterable[LockedFile], readings: Readings) -> Iterator[Unread]:
    """Yield the files that could not be read.

    Packages of conda whose channel did not answer are judged by their names.
    """
    for file in files:
        name = key(file)
        is_named = is_conda_file(file.filename) and name in readings.unanswered
        if name in readings.failures and not is_named:
            yield Unread(file.filename, readings.failures[name])


def _find_unanswered(
    work: AuditWork, readings: Readings, catalogue: Catalogue
) -> Iterator[Unanswered]:
    """Yield the packages that no server gave, by channel; those without a name to judge apart."""
    groups: dict[tuple[str, bool], list[CondaPackage]] = {}
    whys: dict[str, str] = {}
    for package in _find_conda_files(work.resolved.lock):
        name = key(work.wheels[package.name]) if package.name in work.wheels else ""
        if name and name not in readings.unanswered:
            continue
        is_named = is_from_known_channel(package, catalogue) or (
            distribution(package.name, package.version, catalogue) is not None
        )
        groups.setdefault((package.index or "", is_named), []).append(package)
        whys[package.name] = readings.failures.get(name, "the lock does not say where it is")
    for (channel, is_named), packages in sorted(groups.items()):
        yield Unanswered(channel, whys[packages[0].name], tuple(packages), is_named)


def _add_conda(merged: Merged, conda: Iterable[Package], judge: Judge) -> Merged:
    present = {item.name for item in merged.inventory.distributions}
    distributions = conda_distributions(item for item in conda if item.name not in present)
    if not distributions:
        return merged
    declared = judge.evidence(Inventory(distributions=distributions))
    inventory = replace(
        merged.inventory, distributions=(*merged.inventory.distributions, *distributions)
    )
    return replace(merged, inventory=inventory, evidence=(*merged.evidence, *declared))


def _with_depth(
    verdict: Verdict,
    left_open: Mapping[str, Unopened],
    gains_of: Mapping[str, Gain],
    facts: Mapping[str, WheelFacts],
) -> Verdict:
    """Return the verdict with its depth and its open parts."""
    owner = verdict.owner
    read = facts.get(verdict.name)
    gain = gains_of.get(owner)
    unopened_files = left_open.get(owner)
    if read is None:
        return verdict
    # A name that says all needs no look, and nothing is open about it.
    looked = gain is not None or read.depth == "heads"
    possible = may_be(verdict, unopened_files, gain)
    return replace(
        verdict,
        depth=read.depth,
        open=describe_open_rest(unopened_files, gain, read.size)
        if unopened_files is not None and looked
        else None,
        certain=possible is None,
        may_be=possible,
        foreign_at_least=unopened_files is not None and unopened_files.has_more and looked,
        sha256=read.sha256,
    )


# Downloaded, installed and wasted bytes of a lock


def weigh(
    wheels: Wheels,
    verdicts: Iterable[Verdict],
    facts: Mapping[str, WheelFacts],
    unread: Mapping[str, int],
) -> tuple[tuple[Verdict, ...], AuditTotals]:
    """The verdicts with their bytes, and the sums.

    `facts` are those of the wheels, by name; `unread` are the bytes of those that could not be
    read, as the lock says them. Of these, what a name says is foreign is wasted.
    """
    foreign = _foreign_files(wheels)
    # Those that belong to another backend as a whole, as their names say.
    foreign_names = {
        present.name
        for present, match in wheels.matches
        if match.weight == "strong" and match.kind != "multi-backend" and wheels.is_foreign(match)
    }
    weighed = tuple(
        _weigh_verdict(verdict, facts[verdict.name], foreign.get(verdict.owner, {}))
        if verdict.name in facts
        else verdict
        for verdict in verdicts
    )
    return weighed, AuditTotals(
        download=sum(wheel_facts.size for wheel_facts in facts.values()) + sum(unread.values()),
        installed=sum(
            member.size for wheel_facts in facts.values() for member in wheel_facts.members
        ),
        foreign_download=sum(verdict.foreign_download or 0 for verdict in weighed)
        + sum(unread.get(name, 0) for name in foreign_names),
        foreign_installed=sum(
            verdict.foreign_bytes for verdict in weighed if verdict.verdict != "ok"
        ),
        foreign_at_least=any(verdict.foreign_at_least and _adds(verdict) for verdict in weighed),
    )


def _adds(verdict: Verdict) -> bool:
    """Return True if more foreign bytes in it would be more waste."""
    return verdict.is_open or (verdict.verdict != "ok" and verdict.foreign_bytes > 0)


def _foreign_files(wheels: Wheels) -> Mapping[str, Mapping[str, int]]:
    """Distribution (`name==version`) -> path -> bytes in it that are foreign."""
    foreign: dict[str, dict[str, int]] = {}
    for item in wheels.foreign:
        if item.kind in HELD and item.weight == "strong" and item.distribution is not None:
            files = foreign.setdefault(item.distribution, {})
            files[item.path] = max(item.size, files.get(item.path, 0))
    # Files in a container are a part of it.
    inventory = wheels.inventory
    inside: list[Binary | Artefact] = [*inventory.binaries, *inventory.artefacts]
    for part in inside:
        files = foreign.get(part.owner or "", {})
        if part.container is not None and part.path in files:
            files[part.container] = files.get(part.container, 0) + files.pop(part.path)
    return foreign


def _weigh_verdict(verdict: Verdict, facts: WheelFacts, foreign: Mapping[str, int]) -> Verdict:
    installed = sum(member.size for member in facts.members)
    is_whole = verdict.foreign_bytes >= installed
    if verdict.verdict == "ok":
        wasted = 0
    elif is_whole:
        wasted = facts.size
    else:
        # A part of a file is packed as tightly as the whole of it, as far as a list can tell.
        wasted = sum(
            round(member.compressed * min(1.0, foreign[member.path] / member.size))
            for member in facts.members
            if member.path in foreign and member.size
        )
    return replace(
        verdict,
        download=facts.size,
        foreign_download=min(wasted, facts.size),
        foreign_at_least=verdict.foreign_at_least and not is_whole,
    )
