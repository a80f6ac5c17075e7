"""Verdicts on a fleet's images by node class, with reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from buildmatrix.reports.fleet.model import FleetReport, FleetResult
from buildmatrix.rules.model import NODE_STATES, NodeState


@dataclass(frozen=True, slots=True)
class NodeReason:
    """Why images are what they are on a node class: one sentence, and whom it is about."""

    state: NodeState
    text: str
    results: tuple[FleetResult, ...]


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """Verdicts of images on one node class."""

    node: str
    #: Whether it was asked about (`--would-run-on`), and not only images run there.
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


@dataclass(slots=True)
class _Gathered:
    states: dict[NodeState, list[FleetResult]] = field(default_factory=dict)
    unknown: list[FleetResult] = field(default_factory=list)
    reasons: dict[tuple[NodeState, str], list[FleetResult]] = field(default_factory=dict)


def node_answers(report: FleetReport) -> Sequence[NodeAnswer]:
    """Return the answers for the node classes that were asked about, then for those that images run
    on.
    """
    asked = report.would_run_on
    nodes = {node: _Gathered() for node in asked}
    for result in report.results:
        judged = set()
        for fit in result.fits:
            judged.add(fit.node)
            gathered = nodes.setdefault(fit.node, _Gathered())
            gathered.states.setdefault(fit.state, []).append(result)
            for reason in dict.fromkeys(fit.reasons):
                gathered.reasons.setdefault((fit.state, reason), []).append(result)
        for node in dict.fromkeys((*asked, *result.node_classes)):
            if node not in judged:
                nodes.setdefault(node, _Gathered()).unknown.append(result)
    return [
        _answer(node, node in asked, nodes[node])
        for node in (*asked, *sorted(set(nodes) - set(asked)))
    ]


def _answer(node: str, is_asked: bool, gathered: _Gathered) -> NodeAnswer:
    states = sorted(gathered.states, key=_rank)
    reasons = sorted(
        gathered.reasons.items(), key=lambda item: (_rank(item[0][0]), -len(item[1]), item[0][1])
    )
    return NodeAnswer(
        node,
        is_asked,
        {state: tuple(gathered.states[state]) for state in states},
        tuple(gathered.unknown),
        tuple(NodeReason(state, text, tuple(about)) for (state, text), about in reasons),
    )


def _rank(state: NodeState) -> int:
    """The worst first."""
    return -NODE_STATES.index(state)
