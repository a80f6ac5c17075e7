"""What a target took: all of its gates, and nothing that it waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import lock_cases
import pytest
from rulecases import target

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UndecidedError
from buildmatrix.base.progress import Silent
from buildmatrix.commands.build_gates import LockGate
from buildmatrix.commands.build_work import Builders, BuildWork, Options
from buildmatrix.commands.image_gates import ImageGates
from buildmatrix.locks import resolve
from buildmatrix.locks.target_requirements import Question
from buildmatrix.reports.run import assemble
from buildmatrix.reports.run_table import render
from buildmatrix.sources import state_folder
from buildmatrix.sources.state_folder import BuildRecord, State

RECORD = BuildRecord(
    key="k", digest="d", config=None, loaded=True, tags=(), inventory="", seconds=1.2
)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def work(tmp_path: Path, clock: Clock) -> BuildWork:
    item = BuildWork(
        replace(target("cpu"), id="cpu"), State(tmp_path).target_files("cpu"), clock=clock
    )
    item.gates["lock"] = "passed"
    return item


def passed(clock: Clock, work: BuildWork, monkeypatch: pytest.MonkeyPatch) -> BuildWork:
    """The target after its gates: 1.2 s of build, 13 of scan and 17 of smoke."""

    def image(_: ImageGates, slot: object) -> None:
        clock.now += 1.2
        work.record, work.gates["build"] = RECORD, "passed"

    def scan(_: ImageGates, work: BuildWork, judged: object) -> None:
        clock.now += 13
        work.gates["scan"] = "passed"

    def smoke(_: ImageGates, work: BuildWork) -> None:
        clock.now += 17
        work.gates["smoke"] = "passed"

    monkeypatch.setattr(ImageGates, "_image", image)
    monkeypatch.setattr(ImageGates, "_judge_image", lambda *_: None)
    monkeypatch.setattr(ImageGates, "_scan", scan)
    monkeypatch.setattr(ImageGates, "_smoke", smoke)
    options = Options(jobs=1)
    judge = SimpleNamespace(policy=SimpleNamespace(required_gates=lambda _: ()))
    builders = Builders(options.builders, options.jobs, [work])
    ImageGates(None, options, None, judge, Silent(), builders).pass_next()
    return work


def test_the_time_of_a_target_is_that_of_all_its_gates(
    clock: Clock, work: BuildWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    with work.timed():
        clock.now += 9
    # The wheels of all targets, and others that have the builder.
    clock.now += 500
    result = passed(clock, work, monkeypatch).result(Path("/"), ())
    assert result.seconds == pytest.approx(40.2)
    report = assemble("buildmatrix.toml", "2026-11-26", targets=[replace(result, log=None)])
    assert " 40.2 s" in render(report, width=80, color=False)


def test_shards_of_later_runs_know_what_a_target_took(
    clock: Clock, work: BuildWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[BuildRecord] = []
    monkeypatch.setattr(state_folder, "write", lambda _, record: written.append(record))
    passed(clock, work, monkeypatch)
    assert [record.seconds for record in written] == [31.2]


def test_what_the_journal_had_keeps_the_time_of_its_build(
    clock: Clock, work: BuildWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_folder, "write", lambda *_: pytest.fail("it was not built"))
    work.cached = True
    result = passed(clock, work, monkeypatch).result(Path("/"), ())
    assert result.cached and result.seconds == pytest.approx(31.2)


def test_the_lock_of_a_target_is_in_its_time(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where others share its resolution; not that of others."""
    (tmp_path / "requirements.in").write_text("numpy\n")
    works = [
        BuildWork(
            lock_cases.target(id=id, python=python), State(tmp_path).target_files(id), clock=clock
        )
        for id, python in (("one", "3.11"), ("like it", "3.11"), ("newer", "3.12"))
    ]
    spec = lock_cases.spec_of(tmp_path, *(work.target for work in works))

    def lock(_: Path, group: Sequence[Question], *others: object) -> Mapping[str, BuildmatrixError]:
        clock.now += 8
        return {item.target.id: UndecidedError("no index") for item in group}

    monkeypatch.setattr(resolve, "_lock", lock)
    LockGate(spec, Options(jobs=1), None, None, Silent())._fresh(works)
    assert [item.seconds for item in works] == [8, 8, 8]
