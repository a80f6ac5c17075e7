"""What a run over repositories does with answers of workers, and without any."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from datetime import date

import pytest

from buildmatrix.base.data import replace
from buildmatrix.base.errors import ComponentError
from buildmatrix.base.progress import Progress, Silent
from buildmatrix.fleet import auditing, cluster, running
from buildmatrix.fleet.auditing import audit_files, make_undecided
from buildmatrix.fleet.model import (
    AuditDone,
    AuditTask,
    ClusterOptions,
    Holder,
    WaitingOptions,
    WorkerKilledError,
    WorkError,
    WorkerSettings,
)
from buildmatrix.reports.fleet import FleetResult

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
    busy, repeated = 0.0, 0

    def __init__(self, **answers: Sequence[AuditDone | Exception]) -> None:
        self._answers = {name: list(queue) for name, queue in answers.items()}
        self.keys: list[str] = []

    async def run_work(
        self, work: object, argument: AuditTask, *, key: str, priority: int
    ) -> AuditDone:
        self.keys.append(key)
        await asyncio.sleep(0)
        queue = self._answers.get(argument.path.partition(".")[0], [passed(argument)])
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch_workers(self) -> None:
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


def ran(
    monkeypatch: pytest.MonkeyPatch,
    workers: Workers,
    *tasks: AuditTask,
    waiting: WaitingOptions | None = None,
    progress: Progress | None = None,
) -> running.RunOutcome:
    @asynccontextmanager
    async def connected(*_: object):
        yield workers

    monkeypatch.setattr(cluster, "connect", connected)
    return audit_files(
        tasks,
        SETTINGS,
        auditing.AuditDone,
        ClusterOptions(),
        progress=progress or Silent(),
        waiting=waiting,
    )


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
        passes=[make_undecided(passes, SETTINGS, "disk full", again=True), passed(passes)],
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


def away(asked: AuditTask) -> AuditDone:
    return replace(
        make_undecided(asked, SETTINGS, "no answer"), again=True, away="index.test", bytes_read=1
    )


class Heard(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


#: Long enough for some tries, and over before anybody looks at a clock.
HASTY = WaitingOptions(longest=0.05, longest_alone=0.05, first_pause=0.001, last_pause=0.01)


class BackAfter(Workers):
    """Their index answers once so many other files were judged."""

    def __init__(self, others: int) -> None:
        super().__init__()
        self._left = others

    async def run_work(
        self, work: object, argument: AuditTask, *, key: str, priority: int
    ) -> AuditDone:
        done = await super().run_work(work, argument, key=key, priority=priority)
        is_other = not argument.path.startswith("back")
        self._left -= is_other
        return done if is_other or self._left <= 0 else away(argument)


def test_an_index_that_is_away_is_waited_for_by_those_alone_who_need_it(
    monkeypatch: pytest.MonkeyPatch,
):
    back = [task(f"back{number}.txt", "a", "b") for number in range(9)]
    others = [task(f"{number}.txt") for number in range(20)]
    workers, heard = BackAfter(len(others)), Heard()
    patient = replace(HASTY, longest=60.0, longest_alone=60.0)
    outcome = ran(monkeypatch, workers, *back, *others, waiting=patient, progress=heard)
    assert {item.state for item in outcome.results} == {"passed"}
    assert len(outcome.results) == 38
    assert outcome.notes == ("the store is full",)
    # A first try each, before it is known, and what `RegistryWaiting` asked again.
    assert len(workers.keys) == len(set(workers.keys)) == 29 + 9 + outcome.work.retries
    assert heard.notes in ([], ["index.test is away or busy: waiting for it"])


def test_an_index_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch):
    gone = [task(f"gone{number}.txt", "a", "b") for number in range(5)]
    workers = Workers(**{f"gone{number}": [away(item)] for number, item in enumerate(gone)})
    outcome = ran(monkeypatch, workers, *gone, task("fine.txt"), waiting=HASTY)
    assert len(outcome.results) == 11
    assert {item.error for item in outcome.results if item.state == "undecided"} == {"no answer"}
    assert outcome.missing == ()
    assert outcome.notes == (
        "the store is full",
        "index.test gave no answer: 10 files undecided; the same command later judges these, and "
        "nothing else again",
    )


def test_what_was_in_the_store_is_counted(monkeypatch: pytest.MonkeyPatch):
    kept = task("kept.txt", "a", "b")
    workers = Workers(kept=[replace(passed(kept), is_stored=True)])
    outcome = ran(monkeypatch, workers, kept, task("new.txt"))
    assert (outcome.work.subjects, outcome.work.stored) == (3, 2)
