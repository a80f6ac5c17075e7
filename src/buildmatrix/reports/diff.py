"""Differences between two sides as data, and drift between targets as data and as sections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from buildmatrix.base.text import count, listing
from buildmatrix.facts.inventory.model import Unread
from buildmatrix.judge.model import Finding, VerdictName
from buildmatrix.reports.json_form import THIS_TOOL, Tool
from buildmatrix.reports.sections import Row, Section, filled, limit, sentences

#: `image` also for a saved one; `tree` is a folder.
Kind = Literal["image", "tree", "wheel", "lock", "report"]


Change = Literal["added", "removed", "changed"]


#: Where the version of a library comes from: the version in its SONAME or in its file's name, the
#: version of the distribution that ships it, or the toolkit that its SONAME belongs to.
VersionOf = Literal["soname", "file name", "distribution", "toolkit", ""]


#: The largest part of a version that differs, or `bytes` where the version is the same.
Step = Literal["major", "minor", "patch", "local", "bytes", ""]


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One side, as the result names it."""

    source: str
    kind: Kind
    subject: str
    backends: tuple[str, ...]
    size: int | None
    base: str | None
    digest: str | None
    distributions: int
    unread: tuple[Unread, ...] = ()
    is_undecided: bool = False


class DistributionChange(Struct, frozen=True):
    """A distribution that only one side has, or that is another one there."""

    change: Change
    name: str
    backend: str
    #: Versions on each side; several where it is there more than once.
    before: tuple[str, ...]
    after: tuple[str, ...]
    size_before: int | None = None
    size_after: int | None = None
    step: Step = ""
    is_downgrade: bool = False
    #: Further differences, in words: another index, another wheel, other bytes.
    details: tuple[str, ...] = ()
    requires_added: tuple[str, ...] = ()
    requires_removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DistributionChanges:
    """Distributions that differ, each once, in an order that does not depend on the run."""

    #: How many are the same on both sides, as far as both say.
    same: int = 0
    changes: tuple[DistributionChange, ...] = ()


class LibraryChange(Struct, frozen=True):
    """A vendor's library that came, went, or has another version."""

    change: Change
    name: str
    vendor: str
    backend: str
    role: str
    #: Versions on each side, each copy's own; empty where a copy does not say.
    before: tuple[str, ...]
    after: tuple[str, ...]
    version_of: VersionOf = ""
    #: Distributions that ship it, on the side that has it last.
    distributions: tuple[str, ...] = ()
    #: Major change: `12 -> 13`; empty if none.
    major: str = ""
    size_before: int = 0
    size_after: int = 0
    paths: tuple[str, ...] = ()


class ArchitectureChange(Struct, frozen=True):
    """Device code for architectures that came or went."""

    #: None for everything together; empty for files that no distribution owns.
    distribution: str | None
    vendor: str
    gained: tuple[str, ...]
    lost: tuple[str, ...]


class VendorChange(Struct, frozen=True):
    """Bytes of one vendor."""

    vendor: str
    backend: str
    before: int
    after: int


class LayerChange(Struct, frozen=True):
    """A layer of an image that the other one has not, or that holds other bytes."""

    change: Change
    #: Position from the bottom, from 0, where it is: of `after` unless it was removed.
    index: int
    instruction: str
    size_before: int | None
    size_after: int | None


class LayersChange(Struct, frozen=True):
    """The layers of two images."""

    before: int
    after: int
    #: How many are the same, from the bottom.
    same: int
    #: Bytes that layers hold and containers do not see.
    hidden_before: int
    hidden_after: int
    changes: tuple[LayerChange, ...]


class VariableChange(Struct, frozen=True):
    """An environment variable of the image's configuration."""

    change: Change
    name: str
    before: str | None
    after: str | None


class ChangedFinding(Struct, frozen=True):
    """A finding that both sides have, and that counts otherwise now."""

    before: Finding
    after: Finding


class FindingChanges(Struct, frozen=True):
    """Findings that differ, the severe first."""

    #: How many are as they were.
    same: int = 0
    new: tuple[Finding, ...] = ()
    gone: tuple[Finding, ...] = ()
    changed: tuple[ChangedFinding, ...] = ()

    @property
    def raised(self) -> Iterator[tuple[Finding | None, Finding]]:
        """Findings that are new or count otherwise: before, with None for a new one, and now."""
        yield from ((None, finding) for finding in self.new)
        yield from ((pair.before, pair.after) for pair in self.changed)

    def each(self, change: Callable[[Finding], Finding]) -> FindingChanges:
        """The same with `change` made to every finding."""
        return FindingChanges(
            self.same,
            tuple(map(change, self.new)),
            tuple(map(change, self.gone)),
            tuple(
                ChangedFinding(change(changed_finding.before), change(changed_finding.after))
                for changed_finding in self.changed
            ),
        )


class VerdictChange(Struct, frozen=True):
    """A distribution with another verdict, or only on one side; without `ok` ones."""

    name: str
    backend: str
    before: VerdictName | None
    after: VerdictName | None
    #: Why it is what it is now; why it was, for one that is gone.
    reason: str
    foreign_before: int = 0
    foreign_after: int = 0


@dataclass(frozen=True, slots=True)
class TargetChanges:
    """Identifiers of targets that only one of two reports has."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """All differences between two sides. None stands for parts that were not compared."""

    schema: Literal["buildmatrix/diff/1"] = field(default="buildmatrix/diff/1", kw_only=True)
    tool: Tool = field(default=THIS_TOOL, kw_only=True)
    before: ComparedSide
    after: ComparedSide
    targets: TargetChanges = TargetChanges()
    distributions: DistributionChanges = DistributionChanges()
    libraries: tuple[LibraryChange, ...] | None = None
    architectures: tuple[ArchitectureChange, ...] | None = None
    vendors: tuple[VendorChange, ...] | None = None
    layers: LayersChange | None = None
    environment: tuple[VariableChange, ...] | None = None
    findings: FindingChanges | None = None
    verdicts: tuple[VerdictChange, ...] | None = None
    #: Parts that were not compared, with reasons; one sentence each.
    notes: tuple[str, ...] = ()


# Drift as data


class Pinned(Struct, frozen=True):
    """One version of a distribution, and the targets that have it."""

    version: str
    index: str | None
    targets: tuple[str, ...]
    #: From the requirement line down to it, on the first of the targets; by way of who asks for it
    #: there and not where the version is another, if somebody does.
    chain: tuple[str, ...]


class Drift(Struct, frozen=True):
    """A distribution that is not the same in all targets that have it."""

    name: str
    #: The one that most targets have comes first.
    pinned: tuple[Pinned, ...]


class ExplainedDrift(Drift, frozen=True):
    """Drift that is meant."""

    #: Why it is.
    reason: str


@dataclass(frozen=True, slots=True)
class Drifts:
    """Differences between the images of targets."""

    schema: Literal["buildmatrix/drift/1"] = field(default="buildmatrix/drift/1", kw_only=True)
    tool: Tool = field(default=THIS_TOOL, kw_only=True)
    targets: tuple[str, ...]
    #: Distributions that have one version everywhere.
    same: int = 0
    #: By name.
    drift: tuple[Drift, ...] = ()
    explained: tuple[ExplainedDrift, ...] = ()
    #: Targets that nothing is known of, and why.
    unresolved: tuple[str, ...] = ()
    #: Locks that do not fit their inputs any more.
    stale: tuple[str, ...] = ()


# Drift as sections


#: Versions, and targets of one version, that are shown without `--all`.
MOST, MOST_TARGETS = 80, 4


def sections(drifts: Drifts, *, every: bool) -> Sequence[Section]:
    """Distributions that differ without a reason, those with one, and what is not known."""
    most = None if every else MOST
    return filled(
        limit(
            Section(
                "drift",
                "Different without a reason",
                ("distribution", "version", "targets", "brought by"),
                tuple(
                    _row(drift, pinned, every, " -> ".join(pinned.chain))
                    for drift in drifts.drift
                    for pinned in drift.pinned
                ),
                subject=0,
            ),
            most,
        ),
        limit(
            Section(
                "explained",
                "Different for a reason",
                ("distribution", "version", "targets", "reason"),
                tuple(
                    _row(drift, pinned, every, drift.reason)
                    for drift in drifts.explained
                    for pinned in drift.pinned
                ),
                subject=0,
                is_folded=True,
            ),
            most,
        ),
        sentences("unresolved", "Not resolved, so nothing is known about these", drifts.unresolved),
        sentences("stale", "Locks that do not fit their inputs", drifts.stale),
    )


def _row(drift: Drift, pinned: Pinned, every: bool, text: str) -> Row:
    targets = listing(pinned.targets, len(pinned.targets) if every else MOST_TARGETS)
    return Row((drift.name, pinned.version, targets, text))


def summary(drifts: Drifts) -> str:
    """One sentence about the whole."""
    parts = [
        f"{count(len(drifts.drift), 'distribution')} without a reason",
        f"{len(drifts.explained)} with one",
        f"{drifts.same} the same",
    ]
    text = f"{count(len(drifts.targets), 'target')}: {', '.join(parts)}"
    left = f"; {count(len(drifts.unresolved), 'target')} not resolved" if drifts.unresolved else ""
    return text + left


def state_of(drifts: Drifts) -> str:
    """The state of the whole."""
    return "undecided" if drifts.drift or drifts.unresolved else "passed"
