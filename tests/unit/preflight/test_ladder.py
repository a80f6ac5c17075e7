"""The ladder: what ran, what did not, and who has to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from types import SimpleNamespace
from typing import Any, cast

import pytest

from buildmatrix.base.errors import BuildmatrixError, ComponentError, UndecidedError
from buildmatrix.base.progress import Silent
from buildmatrix.engines.model import (
    NO_DEVICES,
    DeviceAccess,
    Facilities,
    ImageFacts,
    Run,
    RunResult,
)
from buildmatrix.matrix.model import Rung, bare_spec, bare_target
from buildmatrix.preflight import run as ladder
from buildmatrix.preflight.run import exit_code, preflight
from buildmatrix.preflight.subject import Subject
from buildmatrix.reports.preflight import Check, PreflightTarget
from buildmatrix.reports.preflight_formats import render_table


class StandInEngine:
    """Runs nothing; `reason` is why it cannot."""

    def __init__(self, reason: BuildmatrixError | None = None) -> None:
        self.reason = reason

    def cannot_run(self, reference: str) -> BuildmatrixError | None:
        return self.reason

    def facilities(self) -> Facilities:
        return Facilities()

    @contextmanager
    def runner(self, reference: str, devices: DeviceAccess = NO_DEVICES) -> Iterator[Run]:
        assert self.reason is None, "it is not to be started"
        yield lambda command, timeout: RunResult(0, "", timed_out=False)


def climbed(
    monkeypatch: pytest.MonkeyPatch,
    states: dict[Rung, str],
    level: Rung = "cold-start",
    reason: BuildmatrixError | None = None,
    *,
    is_asked_for: bool = False,
) -> PreflightTarget:
    def runner(rung: Rung) -> Callable[[Any], tuple[Sequence[Check], str]]:
        checks = (Check("thing", cast(Any, states[rung])),) if rung in states else ()
        return lambda climb: (checks, "" if checks else "no device is here")

    runners = {rung: runner(rung) for rung in ladder.RUNGS}
    monkeypatch.setattr(ladder, "RUNNERS", runners)
    target = bare_target("acme:1", "cpu", "any")
    image = ImageFacts("sha256:1", {}, {}, 1, "")
    subject = Subject(target, bare_spec(target), cast(Any, StandInEngine(reason)), "acme:1", image)
    today = date(2026, 11, 22)
    result = preflight([subject], level, None, Silent(), today, is_asked_for=is_asked_for)
    text = render_table(result, width=100, color=False)
    assert "acme:1" in text
    return SimpleNamespace(  # type: ignore[return-value]
        states={rung.rung: rung.state for rung in result.targets[0].rungs},
        whys={rung.rung: rung.why for rung in result.targets[0].rungs},
        code=exit_code(result),
        strict=exit_code(result, strict=True),
    )


def test_a_rung_that_fails_ends_the_climb(monkeypatch: pytest.MonkeyPatch) -> None:
    climb: Any = climbed(monkeypatch, {"static": "passed", "import": "failed"}, "compute")
    assert climb.states == {
        "static": "passed",
        "import": "failed",
        "device": "not-run",
        "compute": "not-run",
    }
    assert climb.whys["device"] == "the rung `import` failed"
    assert climb.code == 1


def test_what_did_not_run_never_counts_as_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    climb: Any = climbed(monkeypatch, {"static": "passed", "import": "passed"}, "device")
    assert climb.states["device"] == "not-run"
    assert (climb.code, climb.strict) == (0, 3)


def test_what_was_asked_for_and_did_not_run_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    below: dict[Rung, str] = {"static": "passed", "import": "passed"}
    climb: Any = climbed(monkeypatch, below, "device", is_asked_for=True)
    assert (climb.states["device"], climb.code) == ("undecided", 3)
    assert climb.whys["device"] == "no device is here"
    # What stands above a device that is not here is not about the backend.
    climb = climbed(monkeypatch, {**below, "memory": "passed"}, "memory", is_asked_for=True)
    assert (climb.states["device"], climb.states["memory"]) == ("undecided", "not-run")
    # What has nothing to run below it may be left out.
    below |= {"device": "passed", "memory": "passed"}
    climb = climbed(monkeypatch, below, "memory", is_asked_for=True)
    assert (climb.states["batch"], climb.code) == ("not-run", 0)


def test_a_machine_that_has_no_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = UndecidedError("the image is for linux/arm64")
    climb: Any = climbed(monkeypatch, {"static": "passed"}, "device", foreign)
    assert (climb.states["import"], climb.whys["import"]) == ("undecided", foreign.message)
    assert (climb.states["static"], climb.states["device"]) == ("passed", "not-run")
    assert climb.code == 3


def test_a_machine_that_lacks_a_component_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ComponentError("install bubblewrap")
    with pytest.raises(ComponentError, match="acme:1: nothing ran: install bubblewrap"):
        climbed(monkeypatch, {"static": "passed"}, "import", missing)
    climb: Any = climbed(monkeypatch, {"static": "passed"}, "static", missing)
    assert (climb.states, climb.code) == ({"static": "passed"}, 0)


def test_an_undecided_rung_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    climb: Any = climbed(monkeypatch, {"static": "passed", "import": "undecided"}, "import")
    assert climb.code == 3
