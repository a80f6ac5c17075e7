"""Gates that the policy requires: what did not run is open, and never green."""

from __future__ import annotations

from pathlib import Path

import pytest
from rulecases import target

from buildmatrix.base.errors import ComponentError, UndecidedError
from buildmatrix.commands.build_work import BuildWork
from buildmatrix.judge.model import Gate, GateState
from buildmatrix.matrix.model import Policy
from buildmatrix.reports.run import assemble, exit_code
from buildmatrix.sources.state_folder import State

WHY = UndecidedError("the target has no [[smoke]] command")


def work(folder: Path, **states: GateState) -> BuildWork:
    held = BuildWork(target("cuda", "12.8"), State(folder).target_files("cuda12.8-py311-server"))
    gates: dict[Gate, GateState] = {"lock": "passed", "build": "passed", "scan": "passed"}
    held.gates |= gates | states  # type: ignore[operator]
    return held


def test_a_required_gate_that_did_not_run_is_open_and_the_run_undecided(tmp_path: Path) -> None:
    held = work(tmp_path)
    assert held.green
    held.demand(("lock", "build", "scan", "smoke"), WHY)
    assert held.gates["smoke"] == "undecided"
    assert not held.green
    assert held.errors == [
        "the gate smoke did not run, and `gates` under [policy] requires it for cuda: the target "
        "has no [[smoke]] command"
    ]
    assert exit_code(assemble("s", "d", targets=[held.result(tmp_path, ())])) == 3
    assert held.codes == []


def test_what_only_a_component_keeps_from_running_has_its_exit_code(tmp_path: Path) -> None:
    held = work(tmp_path)
    held.demand(("smoke",), ComponentError("no rung ran: install bubblewrap"))
    assert (held.gates["smoke"], held.codes) == ("undecided", [5])


def test_what_lacks_the_answer_of_a_part_has_not_passed(tmp_path: Path) -> None:
    held = work(tmp_path)
    for state, then in (
        ("passed", "passed"), ("undecided", "undecided"), ("passed", "undecided"),
        ("not-run", "undecided"), ("failed", "failed"), ("undecided", "failed"),
    ):  # fmt: skip
        held.merge_state("smoke", state)  # type: ignore[arg-type]
        assert held.gates["smoke"] == then


@pytest.mark.parametrize("gates", [(), ("lock", "build", "scan")])
def test_what_is_not_required_may_be_left_out(tmp_path: Path, gates: tuple[str, ...]) -> None:
    held = work(tmp_path)
    held.demand(gates, WHY)
    assert held.green and held.errors == []


def test_a_required_gate_that_held_says_nothing(tmp_path: Path) -> None:
    held = work(tmp_path, smoke="passed")
    held.demand(("smoke",), WHY)
    assert held.green and held.errors == []


def test_what_failed_is_reported_alone(tmp_path: Path) -> None:
    held = work(tmp_path, scan="failed")
    held.demand(("smoke",), WHY)
    assert held.gates["smoke"] == "not-run" and held.errors == []


def test_the_gates_of_a_backend_take_the_place_of_those_of_all() -> None:
    policy = Policy(gates={"*": ("lock", "scan"), "cuda": ("smoke",)})
    assert policy.required_gates("cuda") == ("smoke",)
    assert policy.required_gates("cpu") == ("lock", "scan")
    assert Policy().required_gates("cpu") == ()
