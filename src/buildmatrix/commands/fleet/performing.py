"""What a worker process does with a task that Dask hands to it."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from distributed import Worker, get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from buildmatrix.commands.fleet.failing import LateError, too_long
from buildmatrix.commands.fleet.fitness import Release, differs
from buildmatrix.commands.fleet.model import Work, WorkerSettings
from buildmatrix.threads import ended_within

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")

#: Seconds that a task may take beyond the time limit: what looks at the clock ends by itself.
_LATE = 30.0
#: Seconds until what came of the last task of a worker is on its way.
_LAST_WORDS = 1.0


class RunPlugin(WorkerPlugin):
    """Settings of a run, which Dask hands to each worker once, to those that come later as well."""

    def __init__(self, run: str, settings: WorkerSettings, *, is_local: bool) -> None:
        self.name = run
        self.settings = settings
        self.release = Release.here()
        self._is_local = is_local

    def setup(self, worker: Worker) -> None:  # noqa: ARG002  # As `WorkerPlugin` has it.
        """Leave Ctrl-C to the process that has started this one, and that ends it."""
        if self._is_local and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(frozen=True, slots=True)
class Answered(Generic[Answer]):
    """What came back, how long it took, and from whom; else why that worker is unfit."""

    answer: Answer | None
    seconds: float
    worker: str
    unfit: str = ""


def perform(run: str, work: Work[Argument, Answer], argument: Argument) -> Answered[Answer]:
    """What a worker does with a task. Raises `LateError` for one that does not end in time.

    What still works on it then cannot be stopped: where somebody starts worker processes again, the
    process ends with it.
    """
    worker = get_worker()
    plugin = worker.plugins.get(run)
    if not isinstance(plugin, RunPlugin):
        why = f"the worker {worker.address} cannot take the settings of a run"
        return Answered(None, 0.0, worker.address, why)
    if plugin.release != Release.here():
        why = differs(worker.address, Release.here(), plugin.release)
        return Answered(None, 0.0, worker.address, why)
    start = time.perf_counter()
    limit = plugin.settings.time_limit
    ended = ended_within(
        limit + min(limit, _LATE), lambda: work(plugin.settings, argument), work.__name__
    )
    if ended is None:
        if worker.nanny is not None:
            worker.loop.add_callback(_replaced, worker, worker.get_current_task())
        raise LateError(too_long("it", limit))
    return Answered(ended.result(), time.perf_counter() - start, worker.address)


async def _replaced(worker: Worker, key: Any) -> None:
    """End a worker whose nanny starts another one, after the end of its task is known.

    What it has not ended would be done again, as nobody is to blame for a worker that closes.
    """
    while (task := worker.state.tasks.get(key)) is not None and task.state == "executing":
        await asyncio.sleep(_LAST_WORDS / 10)
    await asyncio.sleep(_LAST_WORDS)
    await worker.close_gracefully(restart=True)
