"""Answers of a fleet: causes, node classes and undecided results of all its images."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from msgspec import Struct

from buildmatrix.base.text import count
from buildmatrix.judge.composition import VendorBytes
from buildmatrix.judge.model import NODE_STATES, SEVERITY_RANK, NodeState
from buildmatrix.judge.registry import rule_of
from buildmatrix.reports.fleet import (
    FleetChange,
    FleetFinding,
    FleetFit,
    FleetReport,
    FleetResult,
    FleetState,
    Image,
    LayerTotals,
    OwnerDrift,
    OwnerTotals,
    PullTotals,
    VendorTotals,
    bytes_more,
    finding_order,
    running,
)

# Causes shared by many images, each with one fix


#: The fix; or rule, vendor and what it is about.
Key: TypeAlias = tuple[str, ...]


class FleetCause(Struct, frozen=True):
    """Open findings that one fix cures, or of one rule about the same without a fix."""

    key: Key
    #: The one that weighs most.
    first: FleetFinding
    #: Codes of all of them; what is wrong in one place may break several rules.
    rules: tuple[str, ...]
    #: Subjects of findings: distributions, else paths; those of most images first.
    about: tuple[str, ...]
    results: tuple[FleetResult, ...]
    #: Unused bytes that it brings, installed, of all images together. Another cause may bring
    #: the same ones.
    size: int

    @property
    def fix(self) -> str | None:
        """The one thing to do; None where none is known."""
        return self.first.fix

    @property
    def title(self) -> str:
        """Short title."""
        more = f" and {len(self.about) - 1} more" if len(self.about) > 1 else ""
        return f"{self.about[0]}{more}" if self.about else self.first.message

    @property
    def owners(self) -> tuple[str, ...]:
        """Whom the images belong to, where somebody is named."""
        return tuple(sorted({result.owner for result in self.results if result.owner}))


def cause_key(finding: FleetFinding) -> Key:
    """Findings of one key are one cause: cured by one fix, or of one rule about the same."""
    if finding.fix:
        return (finding.fix,)
    about = finding.distribution or finding.path or finding.message
    return (finding.rule, finding.vendor or "", about)


def counts(finding: FleetFinding) -> bool:
    """Return True if the finding asks for action."""
    return finding.waived is None and finding.severity != "note"


def _cause(key: Key, said: Sequence[tuple[FleetFinding, FleetResult]]) -> FleetCause:
    findings = {finding for finding, _ in said}
    about = Counter(finding.distribution or finding.path or "" for finding, _ in said)
    # Of the bytes of one distribution several findings may speak.
    sizes: dict[tuple[int, str], int] = {}
    for finding, result in said:
        place = id(result), finding.distribution or finding.path or ""
        sizes[place] = max(sizes.get(place, 0), finding.size)
    return FleetCause(
        key,
        min(findings, key=finding_order),
        tuple(sorted({finding.rule for finding in findings})),
        tuple(sorted(filter(None, about), key=lambda name: (-about[name], name))),
        tuple({id(result): result for _, result in said}.values()),
        sum(sizes.values()),
    )


def _place(cause: FleetCause) -> tuple[object, ...]:
    rank = SEVERITY_RANK[cause.first.severity]
    return (-rank, -cause.size, -len(cause.results), cause.key)


class NodeReason(Struct, frozen=True):
    """Reason for images' state on a node class, and the images."""

    state: NodeState
    text: str
    results: tuple[FleetResult, ...]


class NodeAnswer(Struct, frozen=True):
    """Verdicts of images on one node class."""

    node: str
    #: True if it was asked about (`--would-run-on`), and not only images run there.
    is_asked: bool
    #: The worst first; only states that occur.
    states: Mapping[NodeState, tuple[FleetResult, ...]]
    #: Of which nothing is known on it: they were not judged, and may break.
    unknown: tuple[FleetResult, ...]
    #: Of the states that keep an image from starting or leave it open first, then what most have.
    reasons: tuple[NodeReason, ...]

    @property
    def refused(self) -> tuple[FleetResult, ...]:
        """Results that fail on it."""
        return self.states.get("refused", ())

    @property
    def open(self) -> int:
        """Images of which it is not known whether they break."""
        return len(self.unknown) + len(self.states.get("undecided", ()))


def _answer(
    node: str,
    is_asked: bool,
    fits: Iterable[tuple[FleetFit, FleetResult]],
    unknown: Iterable[FleetResult],
) -> NodeAnswer:
    states: dict[NodeState, list[FleetResult]] = {}
    reasons: dict[tuple[NodeState, str], list[FleetResult]] = {}
    for fit, result in fits:
        states.setdefault(fit.state, []).append(result)
        for text in dict.fromkeys(fit.reasons):
            reasons.setdefault((fit.state, text), []).append(result)
    ordered = sorted(
        reasons.items(), key=lambda item: (_rank(item[0][0]), -len(item[1]), item[0][1])
    )
    return NodeAnswer(
        node,
        is_asked,
        {state: tuple(states[state]) for state in sorted(states, key=_rank)},
        tuple(unknown),
        tuple(NodeReason(state, text, tuple(about)) for (state, text), about in ordered),
    )


def _rank(state: NodeState) -> int:
    """The worst first."""
    return -NODE_STATES.index(state)


# Undecided and skipped parts, which never count as clean


#: Variable parts of a sentence: digests.
_DIGEST = re.compile(r"[0-9a-f]{12,}")


class ReasonGroup(Struct, frozen=True):
    """Reason that several results share."""

    #: Reason, in the first one's words.
    text: str
    results: tuple[FleetResult, ...]


def _group(said: Iterable[tuple[str, FleetResult]]) -> Sequence[ReasonGroup]:
    """Results by reason, whatever digest it names; the reason of most of them first."""
    groups: dict[str, list[tuple[str, FleetResult]]] = {}
    for text, result in said:
        groups.setdefault(_DIGEST.sub("", text), []).append((text, result))
    made = (
        ReasonGroup(group[0][0], tuple(result for _, result in group)) for group in groups.values()
    )
    return sorted(made, key=lambda group: (-len(group.results), group.text))


def reason(result: FleetResult) -> str:
    """Return the reason why a result is undecided: its error, else the open finding."""
    findings = (
        finding.message
        for finding in result.findings
        if finding.waived is None and rule_of(finding.rule).is_open
    )
    return result.error or next(findings, "not all of it could be read")


# All answers


def pull_totals(images: Sequence[Image]) -> PullTotals:
    """Add up the pulls of images."""
    return PullTotals(
        images=len(images),
        size=sum(image.download for image in images),
        unusable=sum(image.unusable for image in images),
        containers=sum(image.containers for image in images),
        running=sum(image.containers * image.download for image in images),
        unusable_running=sum(image.containers * image.unusable for image in images),
    )


@dataclass(frozen=True)
class FleetAnswer:
    """Summary of a report; each part is computed on first use."""

    report: FleetReport

    @cached_property
    def images(self) -> Sequence[Image]:
        """Each image once, in the order of the report."""
        grouped: dict[tuple[str, ...], list[FleetResult]] = {}
        for result in self.report.results:
            grouped.setdefault((result.kind, *result.key[:3]), []).append(result)
        return [Image(tuple(group)) for group in grouped.values()]

    @cached_property
    def failed(self) -> int:
        """Images that failed for a backend."""
        return sum(image.is_failed for image in self.images)

    @cached_property
    def undecided_images(self) -> int:
        """Images that could not be judged for a backend, and failed for none."""
        return sum(image.is_undecided for image in self.images)

    @cached_property
    def layers(self) -> LayerTotals:
        """Every distinct layer once."""
        sizes: dict[str, int] = {}
        unusable: dict[str, list[int]] = {}
        undecided: set[str] = set()
        for result in self.report.results:
            # An image may have a layer twice: what lies below is hidden there, and counts above.
            own: dict[str, int] = {}
            for layer in result.layers:
                sizes[layer.digest] = max(sizes.get(layer.digest, 0), layer.size)
                sum_ = own.get(layer.digest, 0) + layer.unusable_size
                own[layer.digest] = min(sum_, layer.size)
            if result.state == "undecided":
                undecided.update(own)
                continue
            for digest, size in own.items():
                unusable.setdefault(digest, []).append(size)
        least = {digest: min(held) for digest, held in unusable.items()}
        return LayerTotals(
            layers=len(sizes),
            size=sum(sizes.values()),
            unusable=sum(least.values()),
            unusable_open=sum(least.get(digest, 0) for digest in undecided),
            unusable_in_some=sum(max(held) - min(held) for held in unusable.values()),
        )

    @cached_property
    def pulls(self) -> PullTotals:
        """Every image once, and once for each of its containers."""
        return pull_totals(self.images)

    @cached_property
    def worst(self) -> Sequence[FleetResult]:
        """Results with unused bytes, by the unused bytes of a pull."""
        return sorted(
            (item for item in self.report.results if item.unusable or item.unusable_download),
            key=lambda item: (-item.unusable_download, -item.unusable, item.title, item.key),
        )

    @cached_property
    def worst_running(self) -> Sequence[FleetResult]:
        """By the same times the containers that run it."""
        wasteful = filter(running, self.report.results)
        return sorted(wasteful, key=lambda item: (-running(item), item.title, item.key))

    @cached_property
    def causes(self) -> Sequence[FleetCause]:
        """Fixes to make, the most effective first: errors, then by bytes, then by images."""
        gathered: dict[Key, list[tuple[FleetFinding, FleetResult]]] = {}
        for result in self.report.results:
            for finding in filter(counts, result.findings):
                gathered.setdefault(cause_key(finding), []).append((finding, result))
        return sorted((_cause(key, said) for key, said in gathered.items()), key=_place)

    @cached_property
    def nodes(self) -> Sequence[NodeAnswer]:
        """The node classes that were asked about, then those that images run on."""
        asked = self.report.would_run_on
        fits: dict[str, list[tuple[FleetFit, FleetResult]]] = {node: [] for node in asked}
        unknown: dict[str, list[FleetResult]] = {}
        for result in self.report.results:
            for fit in result.fits:
                fits.setdefault(fit.node, []).append((fit, result))
            judged = {fit.node for fit in result.fits}
            for node in dict.fromkeys((*asked, *result.node_classes)):
                if node not in judged:
                    unknown.setdefault(node, []).append(result)
        others = sorted({*fits, *unknown} - {*asked})
        return [
            _answer(node, node in asked, fits.get(node, ()), unknown.get(node, ()))
            for node in (*asked, *others)
        ]

    @cached_property
    def owners(self) -> Sequence[OwnerTotals]:
        """Each owner, with the most unused bytes in pulls first."""
        by_owner: dict[str, list[Image]] = {}
        for image in self.images:
            by_owner.setdefault(image.owner, []).append(image)
        totals = (
            OwnerTotals(
                owner,
                pull_totals(of_owner),
                sum(image.is_failed for image in of_owner),
                sum(image.is_undecided for image in of_owner),
            )
            for owner, of_owner in by_owner.items()
        )
        return sorted(totals, key=lambda item: (-item.pulls.unusable, -item.failed, item.owner))

    @cached_property
    def vendors(self) -> Sequence[VendorTotals]:
        """Each vendor, with the most unused bytes first."""
        by_vendor: dict[str, list[VendorBytes]] = {}
        for result in self.report.results:
            for held in result.vendors:
                by_vendor.setdefault(held.vendor, []).append(held)
        rows = (
            VendorTotals(
                vendor,
                len(every),
                sum(held.wasted > 0 for held in every),
                sum(held.size for held in every),
                sum(held.wasted for held in every),
            )
            for vendor, every in by_vendor.items()
        )
        return sorted(rows, key=lambda row: (-row.unusable, -row.size, row.vendor))

    @cached_property
    def undecided(self) -> Sequence[ReasonGroup]:
        """By reason."""
        results = self.report.results
        return _group((reason(item), item) for item in results if item.state == "undecided")

    @cached_property
    def left_out(self) -> Sequence[ReasonGroup]:
        """By the extras and groups that were not judged."""
        return _group((item.left_out, item) for item in self.report.results if item.left_out)

    @cached_property
    def owner_drift(self) -> Sequence[OwnerDrift]:
        """Changes by owner, the greatest growth of pulls first; none without an earlier report."""
        by_owner: dict[str, list[FleetChange]] = {}
        for change in self.report.drift.changes if self.report.drift is not None else ():
            by_owner.setdefault(change.owner, []).append(change)
        rows = []
        for owner, of_owner in by_owner.items():
            kinds = Counter(change.change for change in of_owner)
            numbers = kinds["new"], kinds["gone"], kinds["worse"], kinds["better"]
            rows.append(OwnerDrift(owner, *numbers, sum(map(bytes_more, of_owner))))
        return sorted(rows, key=lambda row: (-row.more, -row.worse, row.owner))

    @property
    def noun(self) -> str:
        """Noun for the members of the fleet."""
        kinds = {result.kind for result in self.report.results}
        return kinds.pop() if len(kinds) == 1 else "image" if not kinds else "result"

    @property
    def state(self) -> FleetState:
        """State of the whole fleet."""
        if self.failed:
            return "failed"
        return "undecided" if self.undecided_images or self.report.missing else "passed"

    @property
    def headline(self) -> str:
        """Summary in one line."""
        every = count(len(self.images), self.noun)
        missing = "not everything was looked at" if self.report.missing else ""
        if self.failed:
            unknown = f"{self.undecided_images} undecided" if self.undecided_images else ""
            return ", ".join(filter(None, (f"{self.failed} of {every} failed", unknown, missing)))
        if self.state == "undecided":
            parts = (
                f"{self.undecided_images} of {every}" if self.undecided_images else "",
                missing,
            )
            return f"Undecided: {', '.join(filter(None, parts))}"
        if not self.images:
            return "Nothing is in this fleet"
        return f"Passed: all of {every}" if len(self.images) > 1 else "Passed"

    @property
    def advice(self) -> str:
        """First step to take; empty if there is none."""
        first = next((cause for cause in self.causes if cause.fix), None)
        if first is None:
            return ""
        return f"{count(len(first.results), self.noun)} with {first.title}: {first.fix}"
