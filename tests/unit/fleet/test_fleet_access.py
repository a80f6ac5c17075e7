"""Workers that a registry refuses for their credentials, and what is said about them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from fleet_steps import STEPS, subject

from buildmatrix.base.data import replace
from buildmatrix.base.progress import Silent
from buildmatrix.fleet import cluster as cluster_module
from buildmatrix.fleet.context import RepositoryAccess, describe_problems
from buildmatrix.fleet.model import ClusterOptions, ImageTask, Subject, WorkerSettings
from buildmatrix.fleet.run import RunOutcome, scan
from buildmatrix.reports.fleet import FleetResult


def test_what_one_worker_is_refused_others_are_asked_for_within_bounds() -> None:
    access = RepositoryAccess()
    for number in range(3):
        assert access.may_have_more(10) and access.may_have_more(number + 1)
        access.note(f"worker {number}", denied=True)
    assert not access.may_have_more(10)
    access.note("worker 1", denied=False)
    assert access.may_have_more(10)
    assert [*access.refused] == ["worker 0", "worker 2"]


def test_sentences_name_registries_repositories_and_workers() -> None:
    partly = RepositoryAccess(given={"tcp://a": None}, refused={"tcp://c": None, "tcp://b": None})
    accesses = {
        "registry.test/two": partly,
        "registry.test/one": partly,
        "other.test/private": RepositoryAccess(
            refused={f"tcp://{number}": None for number in range(7)}
        ),
        "other.test/open": RepositoryAccess(given={"tcp://a": None}),
    }
    assert [*describe_problems(accesses)] == [
        "other.test refused private to the workers tcp://0, tcp://1, tcp://2, tcp://3, tcp://4 and "
        "2 more; workers take credentials where they run, and not from here",
        "registry.test refused one, two to the workers tcp://b, tcp://c; others were given it and "
        "did the work: give all workers the same credentials",
    ]


class TwoWorkers:
    """Does everything here; who may, may not."""

    workers, threads, busy, repeated = 2, 2, 0.0, 0

    def __init__(self, logged_in: set[str], *, is_local: bool = False) -> None:
        self.logged_in = logged_in
        self.is_local = is_local
        self.asked: list[str] = []

    async def run_work(
        self,
        work: Callable[..., Any],
        argument: object,
        *,
        avoid: set[str],
        seen: Callable[[str, object], None],
        **_: object,
    ) -> object:
        worker = next((name for name in ("bare", "other") if name not in avoid), "bare")
        self.asked.append(worker)
        answer: Any = work(SETTINGS, argument)
        if isinstance(argument, Subject) and worker not in self.logged_in:
            result = FleetResult(
                repository=argument.reference,
                platform="linux/amd64",
                state="undecided",
                error="401",
            )
            answer = ImageTask(
                subject=argument, reference="", results=(result,), again=True, denied=True
            )
        seen(worker, answer)
        return answer

    async def watch_workers(self) -> None:
        return None


SETTINGS = WorkerSettings(store="", platform="linux/amd64", today=date(2026, 1, 1))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Callable[[TwoWorkers], RunOutcome]:
    import contextlib

    monkeypatch.setattr("test_fleet_access.SETTINGS", replace(SETTINGS, store=str(tmp_path)))

    def judge(cluster: TwoWorkers) -> RunOutcome:
        @contextlib.asynccontextmanager
        async def connected(*_: object) -> Any:
            yield cluster

        monkeypatch.setattr(cluster_module, "connect", connected)
        names = [f"image-1-{number}" for number in range(3, 7)]
        return scan(
            [subject(name) for name in names], SETTINGS, STEPS, ClusterOptions(), progress=Silent()
        )

    return judge


def test_images_go_to_workers_that_have_credentials(
    judged: Callable[[TwoWorkers], RunOutcome],
) -> None:
    cluster = TwoWorkers({"other"})
    outcome = judged(cluster)
    assert {result.state for result in outcome.results} == {"passed"}
    assert outcome.work.retries == 0, "nobody waited"
    assert cluster.asked.count("bare") <= 4
    assert any("to the worker bare; others were given it" in note for note in outcome.notes)


def test_images_that_nobody_may_read_are_undecided_at_once(
    judged: Callable[[TwoWorkers], RunOutcome],
) -> None:
    outcome = judged(TwoWorkers(set()))
    assert [result.error for result in outcome.results] == ["401"] * 4
    assert outcome.work.retries == 0, "nobody waited"
    assert any("workers take credentials where they run" in note for note in outcome.notes)
    assert judged(TwoWorkers(set(), is_local=True)).notes == ()
