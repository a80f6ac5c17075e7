"""What a worker process does with a task that Dask hands to it."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from distributed import Worker, get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from buildmatrix.commands.fleet.failing import too_long
from buildmatrix.commands.fleet.fitness import Release, differs
from buildmatrix.commands.fleet.model import Work, WorkerSettings
from buildmatrix.commands.fleet.waiting import may_pass
from buildmatrix.threads import ended_within

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")

#: Seconds that a task may take beyond the time limit: what looks at the clock ends by itself.
_LATE = 30.0
#: Seconds after which a batch ends with the piece that is at work: what is left goes to others.
_LONG_BATCH = 2.0
#: Seconds that whoever asked has to take what came of the last task of a worker.
_LAST_WORDS = 10.0
_LOOK = 0.1


class RunPlugin(WorkerPlugin):
    """Settings of a run, which Dask hands to each worker once, to those that come later as well."""

    def __init__(self, run: str, settings: WorkerSettings, *, is_local: bool) -> None:
        self.name = run
        self.settings = settings
        self.release = Release.here()
        self.is_local = is_local

    def setup(self, worker: Worker) -> None:  # noqa: ARG002  # As `WorkerPlugin` has it.
        """Leave Ctrl-C to the process that has started this one, and that ends it."""
        if self.is_local and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(frozen=True, slots=True)
class Answered(Generic[Answer]):
    """What came back, how long it took, and from whom; else why that worker is unfit."""

    #: Of the first pieces of work, in their order: of one or more.
    answers: tuple[Answer, ...]
    seconds: float
    worker: str
    unfit: str = ""
    #: Why the next piece has no answer, where it did not end in time.
    late: str = ""


def perform(
    run: str, work: Work[Argument, Answer], arguments: Sequence[Argument]
) -> Answered[Answer]:
    """What a worker does with a task: these pieces of work, one after the other.

    The first is done in any case, and what is raised is about it. Of the others those are left that
    come after a long time, after an answer that may pass, and from what raises on, for which the
    reader has to ask again. What does not end in time cannot be stopped: where somebody starts
    worker processes again, the process ends with it.
    """
    worker = get_worker()
    plugin = worker.plugins.get(run)
    if not isinstance(plugin, RunPlugin):
        why = f"the worker {worker.address} cannot take the settings of a run"
        return Answered((), 0.0, worker.address, why)
    if plugin.release != Release.here():
        why = differs(worker.address, Release.here(), plugin.release)
        return Answered((), 0.0, worker.address, why)
    start = time.perf_counter()
    limit = plugin.settings.time_limit
    answers: list[Answer] = []
    late = ""
    for argument in arguments:
        ended = ended_within(
            limit + min(limit, _LATE), partial(work, plugin.settings, argument), work.__name__
        )
        if ended is None:
            if worker.nanny is not None:
                worker.loop.add_callback(_replaced, worker, worker.get_current_task())
            late = too_long("it", limit)
            break
        if answers and ended.exception() is not None:
            break
        answers.append(ended.result())
        if may_pass(answers[-1]) or time.perf_counter() - start > _LONG_BATCH:
            break
    seconds = time.perf_counter() - start
    return Answered(tuple(answers), seconds, worker.address, late=late)


async def _replaced(worker: Worker, key: Any) -> None:
    """End a worker whose nanny starts another one, after what came of its task was taken.

    What was not would be done again, as nobody is to blame for a worker that closes.
    """
    left = _LAST_WORDS
    while (task := worker.state.tasks.get(key)) is not None and left > 0:
        if task.state != "executing":
            left -= _LOOK
        await asyncio.sleep(_LOOK)
    await worker.close_gracefully(restart=True)
