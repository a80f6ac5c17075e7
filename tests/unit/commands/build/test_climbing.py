"""How far a build climbs the ladder by itself, and what it says of the rest."""

from __future__ import annotations

import platform
from datetime import date
from functools import partial
from pathlib import Path

import pytest
from rulecases import target

from buildmatrix.base.data import replace
from buildmatrix.commands.build_checks import ascent, place_rungs, skip_rungs
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.model import ClimbedRung, TargetResult
from buildmatrix.matrix.model import RUNGS, CheckWaiver, NodeClass, Position, bare_spec
from buildmatrix.preflight import machine
from buildmatrix.reports import run_html, run_markdown
from buildmatrix.reports.run import Report, assemble
from buildmatrix.reports.summary import ladders


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An x86-64 machine without devices."""
    monkeypatch.setattr(machine, "MachineFiles", partial(machine.MachineFiles, tmp_path))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return tmp_path


ACCEPTED = CheckWaiver(
    "import", "scripts", "junk", "ml", date(2026, 12, 31), Position("buildmatrix.toml", 1)
)


def judge() -> Judge:
    return Judge(bare_spec(target("cpu")), "error", date(2026, 11, 22), ())


def result(*rungs: ClimbedRung, id: str = "cpu-py311-server") -> Report:
    gates = dict.fromkeys(("lock", "build", "scan", "smoke"), "passed")
    climbed = TargetResult(id, "cpu", gates, rungs=rungs or None)  # type: ignore[arg-type]
    return assemble("buildmatrix.toml", "2026-11-22", targets=[climbed])


def test_a_build_climbs_to_the_device_where_that_is_here(here: Path) -> None:
    assert ascent(target("cpu"), "auto", judge()).level == "device"
    assert ascent(target("cuda", "12.8"), "auto", judge()).level == "import"
    # Several vendors have it, so that no node is called after it: frameworks tell.
    assert ascent(target("opencl"), "auto", judge()).level == "device"
    assert ascent(target("cuda", "12.8"), "batch", judge()).level == "batch"


def test_nothing_of_an_image_for_another_processor_runs_unless_asked_for(here: Path) -> None:
    foreign = target("cpu", platform="linux/arm64")
    why_not = ascent(foreign, "auto", judge()).why_not
    assert why_not is not None and "this machine is x86_64" in why_not.message
    assert ascent(foreign, "import", judge()).why_not is None


def test_an_answer_holds_for_an_image_a_level_and_the_devices_that_are_here(here: Path) -> None:
    cuda, before = target("cuda", "12.8"), ascent(target("cuda", "12.8"), "import", judge())
    assert before.digest("sha256:1") == ascent(cuda, "import", judge()).digest("sha256:1")
    others = [before.digest("sha256:2"), ascent(cuda, "device", judge()).digest("sha256:1")]
    # A failure that was accepted is a failure again when that ends.
    others.append(before.digest("sha256:1", [ACCEPTED]))
    (here / "dev").mkdir()
    (here / "dev/nvidia0").touch()
    assert ascent(cuda, "auto", judge()).level == "device"
    others.append(ascent(cuda, "import", judge()).digest("sha256:1"))
    assert before.digest("sha256:1") not in others


def test_the_node_classes_of_today_have_to_run_what_an_earlier_build_left() -> None:
    kept = [ClimbedRung("import", "passed"), ClimbedRung("device", "not-run", run_on=("gone",))]
    rack = NodeClass("rack", "cpu", "", (), {}, (), Position("buildmatrix.toml", 1))
    own = replace(target("cpu"), node_classes=(rack,))
    assert [rung.run_on for rung in place_rungs(own, kept)] == [(), ("rack",)]
    assert [rung.rung for rung in skip_rungs(own, "why")] == list(RUNGS[1:])


def test_reports_say_what_passed_what_did_not_run_and_who_has_to() -> None:
    rest = (ClimbedRung(rung, "not-run", run_on=("h200",)) for rung in RUNGS[2:])
    report = result(ClimbedRung("import", "passed"), *rest)
    said = "import passed; device to cold-start not run, left to `buildmatrix preflight` on h200"
    assert [item.text for item in ladders(report)] == [said]
    assert f"- preflight of cpu-py311-server: {said}" in run_markdown.render(report)
    assert "left to <code>buildmatrix preflight</code> on h200" in run_html.render(report)
    # Gaps are not hidden, nor why nobody knows.
    report = result(
        ClimbedRung("import", "not-run", "these need the driver of a node: torch"),
        ClimbedRung("device", "passed"),
        ClimbedRung("compute", "not-run"),
    )
    assert [item.text for item in ladders(report)] == [
        "device passed; import, compute not run (these need the driver of a node: torch), left to "
        "`buildmatrix preflight`"
    ]
    failed = ClimbedRung("import", "failed"), ClimbedRung("device", "not-run", "the rung failed")
    assert [item.text for item in ladders(result(*failed))] == ["import failed"]
    assert ladders(result()) == ()
