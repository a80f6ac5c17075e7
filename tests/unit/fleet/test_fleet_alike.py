"""A hundred thousand results fit into memory where most of them say the same."""

from __future__ import annotations

import pickle
from typing import TypeVar

from buildmatrix.fleet.context import ResultInterner
from buildmatrix.reports.fleet import FleetFinding, FleetLayer, FleetResult

Value = TypeVar("Value")


def as_sent(value: Value) -> Value:
    """As it comes from another process: nothing of it is in this one yet."""
    copy: Value = pickle.loads(pickle.dumps(value))
    return copy


def result(*findings: FleetFinding, top: int) -> FleetResult:
    layers = (
        FleetLayer(digest="sha256:base", size=1, installed=2),
        FleetLayer(digest=f"sha256:{top}", size=3, installed=4),
    )
    return as_sent(
        FleetResult(
            repository="r", digest=f"sha256:{top}", state="failed", findings=findings, layers=layers
        )
    )


def test_what_results_say_alike_is_there_once() -> None:
    one, two = (
        FleetFinding(rule=rule, severity="error", vendor="nvidia", message=f"{rule} is said")
        for rule in ("BM101", "BM204")
    )
    results = [result(one, two, top=1), result(one, two, top=2), result(two, top=3)]
    alike = ResultInterner()
    held = [alike(as_sent(item)) for item in results]
    assert held == results
    assert held[0].findings is held[1].findings
    assert held[0].findings[1] is held[2].findings[0]
    assert held[0].layers[0] is held[1].layers[0] is held[2].layers[0]
    assert held[0].layers[1] != held[1].layers[1]
