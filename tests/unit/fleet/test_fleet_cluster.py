"""What a run learns from Dask about the workers that it has."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from datetime import date
from typing import cast

import dask
import pytest
from distributed import Client, Scheduler, Worker
from distributed.comm import CommClosedError

from buildmatrix.commands.fleet import cluster, preparing
from buildmatrix.commands.fleet.model import ClusterOptions, WorkerSettings
from buildmatrix.commands.fleet.performing import RunPlugin
from buildmatrix.errors import ComponentError


def test_a_run_ends_when_it_has_had_no_worker_for_long_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "_NO_WORKER", 0.5)
    notes: list[str] = []

    async def run() -> None:
        async with Scheduler(port=0, host="127.0.0.1", dashboard=False) as scheduler:
            options = ClusterOptions(scheduler=scheduler.address)
            settings = WorkerSettings(
                store="", platform="linux/amd64", today=date(2026, 1, 1), backend="cpu"
            )
            async with (
                Worker(scheduler.address, nthreads=1, dashboard=False) as worker,
                cluster.connected(options, settings, notes.append) as connected,
            ):
                with pytest.raises(TimeoutError):
                    # Dask's news of its workers comes many times in this time.
                    await asyncio.wait_for(connected.watch(), 1.0)
                await worker.close()
                with pytest.raises(ComponentError, match=r"has had no worker for"):
                    await asyncio.wait_for(connected.watch(), 30)

    with dask.config.set({"distributed.client.scheduler-info-interval": "20 ms"}):
        asyncio.run(run())
    assert not [note for note in notes if "no worker yet" in note]


def test_workers_that_never_come_are_waited_for_and_then_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "_FIRST_WORKER", 0.5)
    notes: list[str] = []

    async def run() -> None:
        async with Scheduler(port=0, host="127.0.0.1", dashboard=False) as scheduler:
            options = ClusterOptions(scheduler=scheduler.address)
            settings = WorkerSettings(store="", platform="linux/amd64", today=date(2026, 1, 1))
            async with cluster.connected(options, settings, notes.append):
                pytest.fail("there is a worker")

    with pytest.raises(ComponentError, match=r"has had no worker for .* Kubernetes why none"):
        asyncio.run(run())
    assert any("has no worker yet; waiting" in note for note in notes)


def test_workers_that_die_again_and_again_are_told_while_the_run_lasts() -> None:
    class Nobody:
        cluster = None

    notes: list[str] = []
    held = cluster.Cluster(Nobody(), "the scheduler", "run-1", {"a": 1, "b": 1}, notes.append)

    def dies(*keys: object) -> None:
        held.heed((0.0, {"action": "remove-worker", "processing-tasks": keys}))

    dies()
    dies(("other-run-2", "x"))
    for _ in range(2):
        dies(("read-run-1", "x"), ("read-run-1", "y"))
    assert notes == []
    for _ in range(3):
        dies(("read-run-1", "x"))
    assert len(notes) == 1
    assert notes[0].startswith("3 workers of the scheduler ended while they had work")
    assert held.repeated == 7


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
        (Losing(1000), "the workers of the cluster end as soon as they are told of this run"),
        (Losing(1, "connecting"), "Stream is closed"),
    ],
    ids=["none ends", "some end", "they always end", "the scheduler is gone"],
)
def test_settings_of_a_run_are_given_while_workers_end_with_a_client_that_stands_for_one(
    client: Losing, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "_PAUSE", 0)
    stand_in, plugin = cast(Client, client), cast(RunPlugin, object())
    with pytest.raises((ComponentError, OSError), match=why) if why else nullcontext():
        asyncio.run(preparing._hand_out(stand_in, "the cluster", plugin))
    assert client.given == (not why)
