"""The grid of targets and node classes, as reports write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from buildmatrix.rules.model import NodeFit, NodeState, TargetResult

#: What a state is like; also a class of the page.
STYLES: Mapping[NodeState, str] = {
    "ok": "good",
    "minor-version": "fair",
    "compat-package": "fair",
    "jit": "fair",
    "undecided": "fair",
    "refused": "bad",
}


def columns(targets: Iterable[TargetResult]) -> Sequence[str]:
    """The node classes of all targets, each once."""
    return tuple(dict.fromkeys(fit.node for target in targets for fit in target.nodes or ()))


def rule_codes(fit: NodeFit) -> str:
    """The rules that have a finding about a cell, with a word on those that are accepted."""
    if fit.state == "ok":
        return ""
    codes: dict[str, bool] = {}
    for reason in fit.reasons:
        if reason.rule:
            codes[reason.rule] = codes.get(reason.rule, True) and reason.waived
    return ", ".join(f"{code} waived" if waived else code for code, waived in sorted(codes.items()))


def notes(targets: Iterable[TargetResult]) -> Sequence[str]:
    """Return the remarks on cells that no finding makes, each sentence once."""
    sentences = (
        f"{fit.node}: {reason.text}"
        for target in targets
        for fit in target.nodes or ()
        for reason in fit.reasons
        if not reason.rule
    )
    return tuple(dict.fromkeys(sentences))
