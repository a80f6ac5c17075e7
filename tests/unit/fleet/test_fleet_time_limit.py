"""No layer and no image takes for ever, whatever a registry does and however many layers it has."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from fleet_steps import STEPS, events, subject
from hasty import HASTY
from loopback import dripping
from registry import RegistryServer

from buildmatrix.base.data import replace
from buildmatrix.base.progress import Silent
from buildmatrix.fleet import cluster, context, work
from buildmatrix.fleet.model import ClusterOptions, LayerDone, LayerTask, WorkerSettings
from buildmatrix.fleet.run import scan
from buildmatrix.fleet.work import read_layer
from buildmatrix.images.documents import LAYER
from buildmatrix.net.registry_client import Registry


def settings_in(folder: Path, seconds: float) -> WorkerSettings:
    return WorkerSettings(
        store=str(folder), platform="linux/amd64", today=date(2026, 1, 1), time_limit=seconds
    )


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RegistryServer]:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(context, "Registry", lambda **_: Registry(patience=HASTY))
    with RegistryServer() as server:
        yield server
    context.close()


class Clock:
    """Time of which a second passes whenever somebody asks for it."""

    def __init__(self) -> None:
        self.seconds = itertools.count()

    def monotonic(self) -> float:
        return next(self.seconds)


def test_a_registry_that_sends_one_byte_after_the_other(
    server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "time", Clock())
    data = bytes(2000)
    digest = server.put("app", data)
    server.misbehave(server.path_of("app", digest), dripping(0.02))
    task = LayerTask(
        reference=f"{server.host}/app:1", digest=digest, size=len(data), media_type=LAYER
    )
    done = read_layer(settings_in(tmp_path / "store", 1.0), task)
    assert not done.again and done.seconds > 1
    assert done.error == (
        f"reading the layer {digest} of {server.host}/app took more than 1 s, the time limit of "
        "one image or layer; run it again with a higher --time-limit if it is only slow"
    )


class Here:
    """A cluster that does everything in this process."""

    workers, threads, busy, repeated, is_local = 1, 1, 0.0, 0, True

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings

    async def run_work(self, work: Callable[..., Any], argument: object, **_: object) -> Any:
        return work(self.settings, argument)

    async def watch_workers(self) -> None:
        return None


@pytest.mark.parametrize(
    ("seconds", "is_broken", "why"),
    [(30.0, False, "reading its layers took more than 100 s"), (0.0, True, "layer 13 is torn")],
)
def test_an_image_with_many_layers_that_come_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, is_broken: bool, why: str
) -> None:
    def read(settings: WorkerSettings, layer: LayerTask) -> LayerDone:
        done = STEPS.read(settings, layer)
        return LayerDone(
            digest=done.digest, bytes_read=1, seconds=seconds, error=done.error, again=False
        )

    settings = settings_in(tmp_path, 100.0)

    @asynccontextmanager
    async def connected(*_: object) -> Any:
        yield Here(settings)

    monkeypatch.setattr(cluster, "connect", connected)
    numbers = [13, *range(100, 140)] if is_broken else [*range(100, 140)]
    slow = subject(f"slow-{'-'.join(map(str, numbers))}")
    # What it did not come to is read for whoever else needs it.
    other = subject("other-139")
    outcome = scan(
        [slow, other],
        settings,
        replace(STEPS, read=read),
        ClusterOptions(),
        progress=Silent(),
    )
    first, second = sorted(outcome.results, key=lambda item: item.repository, reverse=True)
    assert first.state == "undecided" and why in (first.error or "")
    assert second.state == "passed"
    assert len([event for event in events(tmp_path) if event.startswith("read")]) == 17
