"""What travels to workers has no secret in it, whatever this machine knows."""

import base64
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from fleet_steps import STEPS, subject

from buildmatrix.base.progress import Silent
from buildmatrix.fleet import cluster
from buildmatrix.fleet import run as fleet_run
from buildmatrix.fleet.model import ClusterOptions, WorkerSettings
from buildmatrix.fleet.workers import RunPlugin, perform

SECRETS = ("hunter2-of-the-environment", "hunter2-of-docker", "hunter2-of-aws")


class Recording:
    """A cluster that does everything here, and pickles what Dask would send."""

    workers, threads, busy, repeated, is_local = 1, 1, 0.0, 0, False

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.sent: list[bytes] = [_dumps(RunPlugin("run", settings, is_local=False))]

    async def run_work(
        self, work: Callable[..., Any], argument: object, *, key: str, **_: object
    ) -> Any:
        self.sent.append(_dumps((perform, "run", work, (argument,), key)))
        return work(self.settings, argument)

    async def watch_workers(self) -> None:
        return None


def _dumps(value: object) -> bytes:
    from distributed.protocol.pickle import dumps

    return dumps(value)


def test_no_task_holds_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login = base64.b64encode(f"ann:{SECRETS[1]}".encode()).decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"registry.test": {"auth": login}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("REGISTRY_PASSWORD", SECRETS[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS[2])
    settings = WorkerSettings(store=str(tmp_path), platform="linux/amd64", today=date(2026, 1, 1))
    recording = Recording(settings)
    import contextlib

    @contextlib.asynccontextmanager
    async def connected(*_: object) -> Any:
        yield recording

    monkeypatch.setattr(cluster, "connect", connected)
    outcome = fleet_run.scan(
        [subject("image-1-2"), subject("image-2-3")],
        settings,
        STEPS,
        ClusterOptions(),
        progress=Silent(),
    )
    assert len(outcome.results) == 2
    assert len(recording.sent) == 1 + 2 + 3 + 2
    held = b"\n".join(recording.sent)
    for secret in (*SECRETS, login):
        assert secret.encode() not in held
    assert max(map(len, recording.sent)) < 2000, "tasks are small"
