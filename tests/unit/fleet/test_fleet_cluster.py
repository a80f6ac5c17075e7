"""What a run learns from Dask about the workers that it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from datetime import date
from typing import Any, cast

import dask
import pytest
from distributed import Client, Scheduler, Worker
from distributed.comm import CommClosedError
from fleet_steps import STEPS
from test_fleet_waiting import on_clock

from buildmatrix.base.errors import ComponentError
from buildmatrix.fleet import cluster, workers
from buildmatrix.fleet.model import ClusterOptions, WorkerSettings
from buildmatrix.fleet.workers import RunPlugin

#: Seconds until a test that waits for ever fails.
PATIENCE = 300


@pytest.fixture(autouse=True)
def a_scheduler_that_may_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_CONNECT", PATIENCE)


class Workers:
    """Stands for a client whose scheduler has workers in these seconds."""

    cluster = None

    def __init__(self, *spans: tuple[float, float]) -> None:
        self.spans = spans

    def scheduler_info(self) -> dict[str, object]:
        now = asyncio.get_running_loop().time()
        return {"n_workers": sum(start <= now < end for start, end in self.spans), "workers": {}}


def test_a_run_ends_when_it_has_had_no_worker_for_long_and_not_before() -> None:
    async def ended() -> float:
        client: Any = Workers((0, 1000), (1500, 2000))
        with pytest.raises(ComponentError, match="has had no worker for 600 s"):
            await cluster.Cluster(client, "the scheduler", "run-1", {}, print).watch_workers()
        return asyncio.get_running_loop().time()

    assert 2600 <= on_clock(ended()) < 2620


def test_the_news_of_dask_say_when_the_last_worker_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "_NO_WORKER", 0.05)
    notes: list[str] = []

    async def run() -> None:
        async with Scheduler(port=0, host="127.0.0.1", dashboard=False) as scheduler:
            options = ClusterOptions(scheduler=scheduler.address)
            settings = WorkerSettings(
                store="", platform="linux/amd64", today=date(2026, 1, 1), backend="cpu"
            )
            async with (
                Worker(scheduler.address, nthreads=1, dashboard=False) as worker,
                cluster.connect(options, settings, notes.append) as connected,
            ):
                assert cluster._has_workers(connected._client)
                await worker.close()
                with pytest.raises(ComponentError, match=r"has had no worker for"):
                    await asyncio.wait_for(connected.watch_workers(), PATIENCE)

    with dask.config.set({"distributed.client.scheduler-info-interval": "20 ms"}):
        asyncio.run(run())
    assert not [note for note in notes if "no worker yet" in note]


def test_workers_that_never_come_are_waited_for_and_then_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "_FIRST_WORKER", 0.05)
    notes: list[str] = []

    async def run() -> None:
        async with Scheduler(port=0, host="127.0.0.1", dashboard=False) as scheduler:
            options = ClusterOptions(scheduler=scheduler.address)
            settings = WorkerSettings(store="", platform="linux/amd64", today=date(2026, 1, 1))
            async with cluster.connect(options, settings, notes.append):
                pytest.fail("there is a worker")

    with pytest.raises(ComponentError, match=r"has had no worker for .* Kubernetes why none"):
        asyncio.run(run())
    assert any("has no worker yet; waiting" in note for note in notes)


class Waiting:
    """Stands for a client whose workers have not answered yet."""

    cluster = None
    status = "running"

    def submit(self, *_: object, **options: object) -> asyncio.Future[object]:
        self.key = options["key"]
        return asyncio.get_running_loop().create_future()


@asynccontextmanager
async def waited_for(note: Callable[[str], None], number: int) -> AsyncIterator[tuple[Any, Any]]:
    """A cluster, and the keys of this many tasks whose answers somebody waits for."""
    client: Any = Waiting()
    held = cluster.Cluster(client, "the scheduler", "run-1", {"a": 1, "b": 1}, note)
    keys = []
    tasks = []
    for name in range(number):
        tasks.append(
            asyncio.create_task(held.run_work(STEPS.judge, cast(Any, None), key=str(name)))
        )
        await asyncio.sleep(0)
        keys.append(client.key)
    yield held, keys
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    before = held.repeated
    removed(held, processing=keys, computed=keys)
    assert held.repeated == before, "nobody waits for them any more"


def removed(held: cluster.Cluster, **keys: Sequence[object]) -> None:
    """Have the scheduler say that a worker is gone which had something to do with these tasks."""
    names = {"processing": "processing-tasks", "computed": "lost-computed-tasks"}
    tasks = {names[name]: set(some) for name, some in keys.items()}
    held.on_scheduler_event((0.0, {"action": "remove-worker", **tasks}))


def test_work_of_workers_that_die_is_counted_while_somebody_waits_for_it() -> None:
    async def run() -> None:
        async with waited_for(print, 3) as (held, (first, second, third)):
            removed(held, processing=[first, ("judge-run-2", "0"), "else"])
            held.on_scheduler_event((0.0, {"action": "add-worker", "worker": "tcp://127.0.0.1:1"}))
            held.on_scheduler_event((0.0, "anything"))
            assert held.repeated == 1
            removed(held, processing=[first], computed=[second, third, ("judge-run-1", "9")])
            assert held.repeated == 4, "what was done, and whose answer is lost, is done again"

    asyncio.run(run())


def test_workers_that_die_again_and_again_are_told_while_the_run_lasts() -> None:
    notes: list[str] = []

    async def run() -> None:
        async with waited_for(notes.append, 2) as (held, (first, second)):
            removed(held)
            removed(held, processing=[("judge-run-2", "0")])
            for _ in range(2):
                removed(held, processing=[first, second])
            assert notes == []
            for _ in range(3):
                removed(held, processing=[first])
            assert held.repeated == 7

    asyncio.run(run())
    assert len(notes) == 1
    assert notes[0].startswith("3 workers of the scheduler ended while they had work")


class Losing:
    """Stands for a client whose workers end while they are spoken to, so many times."""

    def __init__(self, times: int, status: str = "running") -> None:
        self.left, self.status, self.given = times, status, 0

    async def register_plugin(self, plugin: object) -> None:
        del plugin
        if self.left:
            self.left -= 1
            raise CommClosedError("Stream is closed")
        self.given += 1


@pytest.mark.parametrize(
    ("client", "why"),
    [
        (Losing(0), ""),
        (Losing(3), ""),
        (Losing(1000), "the workers of the cluster end as soon as they receive this run"),
        (Losing(1, "connecting"), "Stream is closed"),
    ],
    ids=["none ends", "some end", "they always end", "the scheduler is gone"],
)
def test_settings_of_a_run_are_given_while_workers_end_with_a_client_that_stands_for_one(
    client: Losing, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_PAUSE", 0)
    stand_in, plugin = cast(Client, client), cast(RunPlugin, object())
    with pytest.raises((ComponentError, OSError), match=why) if why else nullcontext():
        asyncio.run(workers._hand_out(stand_in, "the cluster", plugin))
    assert client.given == (not why)
