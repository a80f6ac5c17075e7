"""Reasons of rules about an image on one node class, before they become findings.

Findings and the grid of targets and node classes use the same reasons, so that they cannot
disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from buildmatrix.catalogue.model import Evidence
from buildmatrix.rules.findings import chain_to_file, finding
from buildmatrix.rules.model import (
    SEVERITY_RANK,
    Finding,
    FitReason,
    Fix,
    NodeState,
    Severity,
)
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.spec.model import NodeClass

#: State of a grid cell, with its reason.
GridState = tuple[NodeState, FitReason]
#: Maximum of node classes that a message describes in full.
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why an image is what it is on one node class."""

    rule: str
    node: str
    state: NodeState
    severity: Severity
    #: Part of the image that it is about, the same for all node classes.
    about: str
    #: Effect on this node class.
    there: str
    owner: str | None = None
    path: str | None = None
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None

    @property
    def text(self) -> str:
        """One sentence."""
        return f"{self.about}: {self.there}"


def findings_of(
    code: str,
    image: ImageSubject,
    reasons: Callable[[ImageSubject, NodeClass], Iterable[Reason]],
) -> Iterator[Finding]:
    """The reasons of all node classes; those that differ in the class alone are one finding."""
    every = [reason for node in image.target.node_classes for reason in reasons(image, node)]

    def key(reason: Reason) -> tuple[str, str, str, int]:
        return (
            reason.owner or "",
            reason.path or "",
            reason.about,
            -SEVERITY_RANK[reason.severity],
        )

    for _, group in groupby(sorted(every, key=key), key):
        same = list(group)
        first = same[0]
        shown = [reason.there for reason in same[:_MOST_NAMED]]
        more = len(same) - len(shown)
        yield finding(
            code,
            image,
            f"{first.about}: {'; '.join(dict.fromkeys(shown))}"
            + (f"; and so on {more} more node classes" if more else ""),
            severity=first.severity,
            vendor=image.own_vendor,
            owner=first.owner,
            path=first.path,
            evidence=first.evidence,
            chain=chain_to_file(image, first.owner, *([first.path] if first.path else [])),
            fix=first.fix,
            by_path=first.owner is None,
        )
