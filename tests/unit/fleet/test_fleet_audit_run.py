"""What a run over repositories does with answers of workers, and without any."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from datetime import date

import pytest

from buildmatrix.commands.fleet import audit_run, running
from buildmatrix.commands.fleet.audit_model import AuditDone, AuditTask, Holder
from buildmatrix.commands.fleet.audit_run import audit
from buildmatrix.commands.fleet.audit_work import undecided
from buildmatrix.commands.fleet.failing import WorkerKilledError, WorkError
from buildmatrix.commands.fleet.model import ClusterOptions, WorkerSettings
from buildmatrix.errors import ComponentError
from buildmatrix.progress import Silent
from buildmatrix.reports.fleet.model import FleetResult

SETTINGS = WorkerSettings(store="", platform="linux/amd64", today=date(2026, 1, 1))


def task(path: str, *repositories: str) -> AuditTask:
    holders = tuple(
        Holder(repository=name, path=path, commit="c", created="", place="clones")
        for name in repositories or ("a",)
    )
    return AuditTask(holders=holders, path=path, backend="cpu")


class Workers:
    """Answers by the path of a file, the last of them for ever."""

    workers = threads = 2
    busy = 0.0

    def __init__(self, **answers: Sequence[AuditDone | Exception]) -> None:
        self._answers = {name: list(queue) for name, queue in answers.items()}
        self.keys: list[str] = []

    async def do(self, work: object, argument: AuditTask, *, key: str, priority: int) -> AuditDone:
        self.keys.append(key)
        await asyncio.sleep(0)
        queue = self._answers.get(argument.path.partition(".")[0], [passed(argument)])
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch(self) -> None:
        await asyncio.Event().wait()


def passed(done: AuditTask) -> AuditDone:
    return AuditDone(
        results=tuple(
            FleetResult(kind="lock", repository=item.repository, names=(item.path,), state="passed")
            for item in done.holders
        ),
        bytes_read=10,
        notes=("the store is full",),
    )


def ran(monkeypatch: pytest.MonkeyPatch, workers: Workers, *tasks: AuditTask) -> running.Outcome:
    @asynccontextmanager
    async def connected(*_: object):
        yield workers

    monkeypatch.setattr(running, "connected", connected)
    return audit(tasks, SETTINGS, audit_run.AuditDone, ClusterOptions(), progress=Silent())


def test_all_are_judged_once(monkeypatch: pytest.MonkeyPatch):
    tasks = [task(f"{number}.txt", "a", "b") for number in range(20)]
    workers = Workers()
    outcome = ran(monkeypatch, workers, *tasks)
    assert len(outcome.results) == 40
    assert len(set(workers.keys)) == 20
    assert outcome.notes == ("the store is full",)
    assert (outcome.work.subjects, outcome.work.bytes_read, outcome.work.retries) == (40, 200, 0)


def test_what_killed_its_worker_or_may_pass_is_tried_again_alone(monkeypatch: pytest.MonkeyPatch):
    kills, passes, fails = task("kills.txt"), task("passes.txt"), task("fails.txt")
    workers = Workers(
        kills=[WorkerKilledError()],
        passes=[undecided(passes, SETTINGS, "disk full", again=True), passed(passes)],
        fails=[WorkError("internal error")],
    )
    outcome = ran(monkeypatch, workers, kills, passes, fails)
    assert {item.names[0]: (item.state, item.error) for item in outcome.results} == {
        "kills.txt": ("undecided", running.KILLED.format("judging it")),
        "passes.txt": ("passed", None),
        "fails.txt": ("undecided", "internal error"),
    }
    assert outcome.work.retries == 2
    # Dask would give the answer to the first try for the same key.
    assert len(set(workers.keys)) == len(workers.keys) == 5


def test_a_cluster_that_is_gone_leaves_what_was_judged(monkeypatch: pytest.MonkeyPatch):
    tasks = [task(f"{name}.txt") for name in ("a", "b", "c", "d", "gone")]
    outcome = ran(monkeypatch, Workers(gone=[ComponentError("the scheduler is gone")]), *tasks)
    assert outcome.stopped is not None
    assert outcome.stopped.exit_code == 5
    assert len(outcome.results) == 4
    assert outcome.missing == ("1 of 5 files not judged: the run ended before",)
