"""What a process keeps between tasks: credentials that run out, threads that share all of it."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest
from hasty import HASTY
from image_registry import ImageRegistry
from layer_archives import tar
from registry import RegistryServer
from test_python_loading import ELF

from buildmatrix.base.data import replace
from buildmatrix.fleet import context
from buildmatrix.fleet.context import find_context
from buildmatrix.fleet.model import ImageDone, Subject, WorkerSettings
from buildmatrix.fleet.work import judge_image, read_layer, resolve
from buildmatrix.images.documents import Descriptor, Manifest, encode
from buildmatrix.net.registry_client import Registry

SETTINGS = WorkerSettings(store="", platform="linux/amd64", today=date(2026, 11, 23), backend="cpu")


@pytest.fixture(autouse=True)
def own_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(context, "Registry", lambda **_: Registry(patience=HASTY))
    context.close()
    yield tmp_path
    context.close()


def log_in(folder: Path, host: str, password: str) -> None:
    auth = base64.b64encode(f"robot:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))


def test_credentials_that_ran_out_are_read_again(
    own_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RegistryServer(auth="basic", login=("robot", "new")) as server:
        kind = "application/vnd.cncf.helm.config.v1+json"
        chart = Descriptor(media_type=kind, digest=server.put("app", b"{}"), size=2)
        server.tag("app", "1", encode(Manifest(config=chart, layers=())))
        log_in(own_machine, server.host, "old")
        monkeypatch.setattr(context, "_FRESH", math.inf)
        subject = Subject(reference=f"{server.host}/app:1", places=())
        task = resolve(SETTINGS, subject)
        (result,) = task.results
        assert task.again and "does not take the credentials" in (result.error or "")
        assert "old" not in str(result.error)
        log_in(own_machine, server.host, "new")
        # They were read a moment ago: a registry that refuses them is not asked twice.
        assert resolve(SETTINGS, subject).again
        monkeypatch.setattr(context, "_FRESH", 0.0)
        task = resolve(SETTINGS, subject)
        assert "helm.config" in task.left_out and task.results == ()


def test_threads_of_one_process_share_a_context(own_machine: Path) -> None:
    with ImageRegistry() as server:
        base = tar([("usr/lib/libx.so", ELF), ("srv/data.txt", b"1" * 1000)])
        for number in range(12):
            server.image([base, tar([("app/main.py", b"%d" % number)])], tag=f"{number}")

        def done(number: int) -> ImageDone:
            task = resolve(SETTINGS, Subject(reference=f"{server.host}/app:{number}", places=()))
            for layer in task.unread:
                assert read_layer(SETTINGS, layer).error is None
            return judge_image(SETTINGS, task)

        with ThreadPoolExecutor(6) as pool:
            together = [answer.results for answer in pool.map(done, range(12))]
        context.close()
        for file in own_machine.rglob("cache/**/*"):
            if file.is_file():
                file.unlink()
        assert together == [done(number).results for number in range(12)]


def test_a_process_has_few_contexts(own_machine: Path) -> None:
    first = find_context(SETTINGS)
    assert find_context(replace(SETTINGS)) is first
    for number in range(context.MOST_CONTEXTS):
        find_context(replace(SETTINGS, backend=f"{number}"))
    assert find_context(SETTINGS) is not first
