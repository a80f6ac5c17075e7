"""Which smoke commands run, and what a gate may say of those that did not.

The engine is a stand-in here: it answers what the test wants to see handled. Real containers are
in tests/integration/test_docker_engine.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from buildmatrix.base.errors import BuildmatrixError, ComponentError, UndecidedError
from buildmatrix.base.progress import Silent
from buildmatrix.commands import build_checks
from buildmatrix.engines.model import Run, RunResult
from buildmatrix.matrix.model import Base, Position, Smoke, SmokeLevel, Target, User

WHERE = Position("buildmatrix.toml", 12)


class Answers:
    """An engine that can only run commands, and knows how each ends."""

    def __init__(self, *answers: RunResult) -> None:
        self.answers = list(answers)
        self.ran: list[tuple[str, ...]] = []
        self.why_not: BuildmatrixError | None = None

    def cannot_run(self, reference: str) -> BuildmatrixError | None:
        return self.why_not

    @contextmanager
    def runner(self, reference: str) -> Iterator[Run]:
        yield self._run

    def _run(self, command: Sequence[str], timeout_s: float) -> RunResult:
        self.ran.append(tuple(command))
        return self.answers.pop(0)


OK = RunResult(0, "fine", timed_out=False)


def command(name: str, level: SmokeLevel = "import") -> Smoke:
    return Smoke(name, level, ("python", "-c", name), 30.0, WHERE)


def target(*commands: Smoke) -> Target:
    return Target(
        id="cpu-py311", project="p", backend="cpu", runtime="any", runtime_values={},
        python="3.11", variant="", platform="linux/amd64", base=Base("b", "b"),
        requirements=(), extras=(), pyproject=None, replace={}, drop=(), no_binary=(), index={},
        torch=None, archs=(), system_packages=(), env={}, labels={}, template="t", copy=(),
        command=(), user=User(), image="i", tags=("i:1",), lock="l", smoke=commands,
    )  # fmt: skip


def run(
    engine: Answers, *commands: Smoke, already_passed: Sequence[str] = (), has_device: bool = True
) -> build_checks.SmokeOutcome:
    return build_checks.run(
        target(*commands),
        has_device,
        "i:1",
        "sha256:c",
        already_passed,
        engine,  # type: ignore[arg-type]
        Silent(),
    )


def test_import_commands_that_succeed_pass_the_gate() -> None:
    engine = Answers(OK, OK)

    assert run(engine, command("a"), command("b")).state == "passed"
    assert engine.ran == [("python", "-c", "a"), ("python", "-c", "b")]


@pytest.mark.parametrize("level", ["device", "batch"])
def test_a_target_whose_only_commands_need_a_device_was_not_run(level: SmokeLevel) -> None:
    assert run(Answers(), command("a", level)).state == "not-run"


@pytest.mark.parametrize("level", ["device", "batch"])
def test_every_level_runs_where_the_backend_has_no_device(level: SmokeLevel) -> None:
    assert run(Answers(OK), command("a", level), has_device=False).state == "passed"


def test_a_target_without_commands_was_not_run() -> None:
    assert run(Answers()).state == "not-run"


def test_a_command_that_fails_fails_the_gate_and_is_quoted() -> None:
    outcome = run(Answers(RunResult(1, "Traceback\nImportError: libcuda", False)), command("a"))

    assert outcome.state == "failed"
    assert outcome.error is not None
    assert "'a' (buildmatrix.toml:12) failed with exit code 1" in outcome.error
    assert "| ImportError: libcuda" in outcome.error


def test_a_command_that_does_not_end_fails_the_gate() -> None:
    outcome = run(Answers(RunResult(0, "", timed_out=True)), command("a"))

    assert outcome.state == "failed"
    assert "did not end within 30 s" in (outcome.error or "")


def test_nothing_runs_after_a_failure() -> None:
    engine = Answers(RunResult(1, "", False))
    run(engine, command("a"), command("b"))

    assert len(engine.ran) == 1


def test_what_this_image_passed_before_is_not_run_again() -> None:
    passed = run(Answers(OK, OK), command("a"), command("b")).passed
    engine = Answers()

    assert run(engine, command("a"), command("b"), already_passed=passed).state == "passed"
    assert engine.ran == []


def test_another_command_is_run_although_the_image_is_the_same() -> None:
    passed = run(Answers(OK), command("a")).passed
    engine = Answers(OK)

    assert run(engine, command("other"), already_passed=passed).state == "passed"
    assert engine.ran == [("python", "-c", "other")]


def test_another_image_is_tried_again() -> None:
    passed = run(Answers(OK), command("a")).passed
    engine = Answers(OK)
    build_checks.run(target(command("a")), True, "i:1", "sha256:other", passed, engine, Silent())  # type: ignore[arg-type]

    assert len(engine.ran) == 1


@pytest.mark.parametrize("kind", [ComponentError, UndecidedError])
def test_where_nothing_can_be_run_the_gate_is_open_for_the_cause(
    kind: type[BuildmatrixError],
) -> None:
    held = run(Answers(OK), command("a")).passed
    engine = Answers()
    engine.why_not = kind("no sandbox here")
    outcome = run(engine, command("a"), command("b"), command("c"), already_passed=held)

    assert (outcome.state, outcome.passed) == ("undecided", held)
    assert type(outcome.why_not) is kind
    assert (
        outcome.why_not is not None
        and outcome.why_not.message == "smoke commands b, c did not run: no sandbox here"
    )


def test_where_nothing_can_be_run_nobody_asks_for_what_needs_a_device() -> None:
    engine = Answers()
    engine.why_not = ComponentError("no sandbox here")

    assert run(engine, command("a", "device")).state == "not-run"


def test_what_passed_elsewhere_counts_where_nothing_can_be_run() -> None:
    passed = run(Answers(OK), command("a")).passed
    engine = Answers()
    engine.why_not = ComponentError("no sandbox here")

    assert run(engine, command("a"), already_passed=passed).state == "passed"
