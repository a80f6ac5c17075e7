"""A second worker that does not fit is refused in a sentence.

Real workers: one of this buildmatrix, and one of a copy that differs or reaches another store.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path

import pytest
from distributed import Scheduler, Worker
from fleet_steps import STEPS, subject

import buildmatrix
from buildmatrix.base.errors import ComponentError
from buildmatrix.fleet.cluster import connect
from buildmatrix.fleet.model import ClusterOptions, WorkerSettings

PACKAGE = Path(buildmatrix.__file__).parent
STEPS_FOLDER = Path(__file__).parents[1] / "unit/fleet"


def other_buildmatrix(folder: Path, name: str, change: tuple[str, str]) -> Path:
    """A folder with a buildmatrix of which one file is another one."""
    own = folder / "buildmatrix"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, own, copy_function=os.link, ignore=ignore)
    file = own / name
    text = file.read_text("utf-8")
    assert change[0] in text
    file.unlink()
    file.write_text(text.replace(*change, 1), "utf-8")
    return folder


@asynccontextmanager
async def second_worker(
    scheduler: Scheduler, folder: Path, path: Path = PACKAGE.parent, view: Sequence[str] = ()
) -> AsyncIterator[None]:
    """A worker process that takes buildmatrix from `path`; `view` is the command before it."""
    command = [*view, sys.executable, "-m", "distributed.cli.dask_worker", scheduler.address]
    process = subprocess.Popen(
        [*command, "--nthreads", "1", "--no-nanny", "--no-dashboard"],
        env=os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{STEPS_FOLDER}"},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while len(scheduler.workers) < 2:
            assert process.poll() is None
            await asyncio.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def settings_of(store: Path) -> WorkerSettings:
    return WorkerSettings(store=str(store), platform="linux/amd64", today=date(2026, 1, 1))


async def refusal_of(folder: Path, path: Path = PACKAGE.parent, view: Sequence[str] = ()) -> str:
    """What a run says that has such a second worker from the start."""
    store = folder / "store"
    store.mkdir()
    async with (
        Scheduler(port=0, host="127.0.0.1", dashboard=False) as scheduler,
        Worker(scheduler.address, nthreads=1, dashboard=False),
        second_worker(scheduler, folder, path, view),
    ):
        options = ClusterOptions(scheduler=scheduler.address)
        with pytest.raises(ComponentError) as caught:
            async with connect(options, settings_of(store), lambda _: None):
                pass
    return caught.value.message


@pytest.mark.parametrize(
    ("name", "change", "shown"),
    [
        ("facts/inventory/model.py", ('SCHEMA = "', 'SCHEMA = "another/'), "(facts another/"),
        ("catalogue/data/cpu.toml", ("\n", "\n# another one\n"), "catalogue "),
    ],
)
def test_a_worker_that_runs_something_else(
    tmp_path: Path, name: str, change: tuple[str, str], shown: str
) -> None:
    path = other_buildmatrix(tmp_path / "copy", name, change)
    message = asyncio.run(refusal_of(tmp_path, path))
    there, _, here = message.partition(", and here is ")
    assert there.startswith("the worker tcp://127.0.0.1:") and shown in there
    assert f"runs buildmatrix {buildmatrix.__version__} " in there
    assert here.endswith("verdicts could differ; install the same versions on both")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_worker_that_reaches_another_store(tmp_path: Path) -> None:
    hidden = f'mount -t tmpfs none {tmp_path}/store && exec "$@"'
    view = ["unshare", "--mount", "sh", "-c", hidden, "sh"]
    message = asyncio.run(refusal_of(tmp_path, view=view))
    assert f"does not find in the store {tmp_path}/store what the worker tcp://" in message
    assert "have all workers reach the same store, or leave --store out" in message


def test_a_worker_that_joins_later(tmp_path: Path) -> None:
    path = other_buildmatrix(
        tmp_path / "copy", "facts/inventory/model.py", ('SCHEMA = "', 'SCHEMA = "another/')
    )

    async def run() -> None:
        async with (
            Scheduler(port=0, host="127.0.0.1", dashboard=False) as scheduler,
            Worker(scheduler.address, nthreads=1, dashboard=False) as first,
        ):
            options = ClusterOptions(scheduler=scheduler.address)
            async with connect(options, settings_of(tmp_path), lambda _: None) as cluster:
                image = subject("image-1-2")
                assert await cluster.run_work(STEPS.resolve, image, key="one")
                async with second_worker(scheduler, tmp_path, path):
                    await first.close()
                    with pytest.raises(ComponentError, match="verdicts could differ"):
                        await cluster.run_work(STEPS.resolve, image, key="two")

    asyncio.run(run())
