"""Baselines: what is compared, what fails, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.matrix.model import Rung
from buildmatrix.preflight.baseline import accept, compare_rung, find_counterpart, read_expectations
from buildmatrix.reports.preflight import (
    Check,
    Preflight,
    PreflightTarget,
    RungOutcome,
    RungState,
    Value,
)
from buildmatrix.reports.run import ReportTool


def target(
    rung: Rung = "cold-start",
    state: RungState = "passed",
    id: str = "acme",
    backend: str = "cpu",
    node_class: str | None = "server",
    **values: Value,
) -> PreflightTarget:
    check = Check("torch", state, values=values)
    outcome = RungOutcome(rung, state, (check,))
    return PreflightTarget(id, backend, (outcome,), node_class=node_class)


def preflight(*targets: PreflightTarget) -> Preflight:
    return Preflight(ReportTool(version="1", catalogue="2026-11-22"), targets)


def subject(id: str = "acme", backend: str = "cpu", is_target: bool = True) -> Any:
    point = SimpleNamespace(id=id, backend=backend)
    return SimpleNamespace(target=point, files=object() if is_target else None)


def against(
    rung: Rung, old: dict[str, Value], new: dict[str, Value], state: RungState = "passed"
) -> list[tuple[str, str]]:
    now = (Check("torch", state, values=new),)
    return [(c.state, c.message) for c in compare_rung(rung, now, target(rung, **old))]


@pytest.mark.parametrize(
    ("rung", "old", "new", "state"),
    [
        ("cold-start", {"p50_s": 2.0}, {"p50_s": 2.3}, "passed"),
        ("cold-start", {"p50_s": 2.0}, {"p50_s": 2.5}, "failed"),
        # A few hundredths of a second are no regression, however short the time was.
        ("cold-start", {"p50_s": 0.02}, {"p50_s": 0.04}, "passed"),
        ("cold-start", {"p50_s": 2.0, "p95_s": 3.0}, {"p50_s": 2.0, "p95_s": 4.0}, "failed"),
        ("compute", {"tflops": 10.0}, {"tflops": 9.0}, "passed"),
        ("compute", {"tflops": 10.0}, {"tflops": 3.3}, "failed"),
        ("collective", {"gbps": 100.0}, {"gbps": 20.0}, "failed"),
        # What the user's commands take is theirs to judge: it is said.
        ("batch", {"p50_s": 2.0}, {"p50_s": 4.0}, "passed"),
        ("compute", {"tflops": 10.0}, {"tflops": 30.0}, "passed"),
    ],
)
def test_what_is_a_fifth_worse_fails_where_the_machine_is_to_blame(
    rung: Rung, old: dict[str, Value], new: dict[str, Value], state: str
) -> None:
    ((was, message),) = against(rung, old, new)
    assert was == state
    assert "tolerance 1.2" in message


def test_a_regression_is_said_with_both_numbers_and_their_ratio() -> None:
    ((_, message),) = against("cold-start", {"p50_s": 2.0}, {"p50_s": 3.0})
    assert message.startswith("p50 3.00 s is 1.50 times the 2.00 s of the baseline")
    ((_, message),) = against("compute", {"tflops": 9.0}, {"tflops": 3.0})
    assert message.startswith("tflops 3 is 1/3.00 of the 9 of the baseline")


def test_what_was_not_measured_again_is_undecided_and_not_lost() -> None:
    earlier = target(p50_s=2.0)
    (gone,) = compare_rung("cold-start", (), earlier)
    assert gone.state == "undecided"
    ((state, message),) = against("cold-start", {"p50_s": 2.0}, {"n": 1})
    assert (state, message) == ("undecided", "p50_s was not measured")
    ((state, message),) = against("cold-start", {"p50_s": 2.0, "p95_s": 2.0}, {"p50_s": 2.0})
    assert state == "passed" and "p95_s was not measured: too few samples" in message


def test_what_failed_is_not_compared_and_what_was_not_measured_then_neither() -> None:
    assert against("cold-start", {"p50_s": 2.0}, {}, "failed") == []
    assert against("cold-start", {"device": "cpu"}, {"p50_s": 1.0}) == []
    for value in (float("nan"), float("inf"), 0.0, -1.0, True):
        assert against("cold-start", {"p50_s": value}, {"p50_s": 1.0}) == []


@pytest.mark.parametrize(
    ("earlier", "words"),
    [
        (target(node_class="h100"), "was taken on h100, and this is server"),
        (target(node_class=None), "was taken on no node class, and this is server"),
        (target(backend="cuda"), "is about acme for cuda, and this image is for cpu"),
        (target(id="other"), "has nothing about acme"),
    ],
)
def test_another_machine_or_backend_is_refused_in_a_sentence(
    earlier: PreflightTarget, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        find_counterpart(preflight(earlier), Path("base.json"), subject(), "server")


def test_an_image_that_is_no_target_is_compared_with_one_of_its_backend() -> None:
    earlier = target(id="acme:1")
    image = subject("acme:2", is_target=False)
    assert find_counterpart(preflight(earlier), Path("base.json"), image, "server") is earlier


def test_what_was_accepted_is_what_is_expected(tmp_path: Path) -> None:
    path = tmp_path / "baselines/server.json"
    check = Check("warmup cold", "passed", values={"result": {"loss": 0.25}})
    earlier = PreflightTarget(
        "acme", "cpu", (RungOutcome("batch", "passed", (check,)),), node_class="server"
    )
    accept(preflight(earlier), path)
    (expected,) = read_expectations([(subject(), "server")], path, None)
    assert expected.baseline == earlier
    assert expected.results == {"warmup cold": {"loss": 0.25}}
    # What a CPU computed is compared whatever the machine was.
    (other,) = read_expectations([(subject("acme-cuda", "cuda"), "h100")], None, path)
    assert (other.baseline, other.results) == (None, expected.results)


@pytest.mark.parametrize("state", ["failed", "undecided"])
def test_what_did_not_pass_is_not_accepted(tmp_path: Path, state: RungState) -> None:
    path = tmp_path / "base.json"
    with pytest.raises(UndecidedError, match="was not written"):
        accept(preflight(target(state=state)), path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a preflight"),
        ('{"schema": "buildmatrix/preflight/9", "tool": {}, "targets": []}', "preflight/9"),
        ('{"schema": "buildmatrix/report/1", "tool": {}, "targets": []}', "report/1"),
        ("[" * 100_000, "is not a preflight"),
    ],
    ids=range(4),
)
def test_a_file_that_is_no_preflight_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "base.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        read_expectations([(subject(), None)], path, None)
    with pytest.raises(UsageError, match="cannot be read"):
        read_expectations([(subject(), None)], tmp_path / "missing", None)


def test_of_several_nodes_the_same_one_counts_and_as_many_together() -> None:
    def outcome(where: str, nodes: int, gbps: float) -> RungOutcome:
        rate = Check("all", "passed", values={"gbps": gbps})
        return RungOutcome("collective", "passed", (rate,), where=where, nodes=nodes)

    rungs = (outcome("a", 1, 10.0), outcome("b", 1, 20.0), outcome("a with 3 more", 4, 40.0))
    earlier = PreflightTarget("x", "cuda", rungs)
    now = (Check("all", "passed", values={"gbps": 10.0}),)

    def ratio(where: str, nodes: int) -> object:
        found = compare_rung("collective", now, earlier, where, nodes)
        return [check.values["ratios"] for check in found]

    assert ratio("b", 1) == [{"gbps": 2.0}]
    assert ratio("unknown", 1) == [{"gbps": 1.0}]
    assert ratio("b with 3 more", 4) == [{"gbps": 4.0}]
    assert ratio("a", 2) == []
