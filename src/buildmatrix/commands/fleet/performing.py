"""Execution of Dask tasks in a worker process."""

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

from buildmatrix.commands.fleet.failing import describe_timeout
from buildmatrix.commands.fleet.fitness import Release, describe_difference
from buildmatrix.commands.fleet.model import Work, WorkerSettings
from buildmatrix.commands.fleet.waiting import is_temporary
from buildmatrix.threads import ended_within

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")

#: Extra seconds of a task beyond the time limit: work with its own clock ends by itself.
_LATE_SECONDS = 30.0
#: Seconds after which a batch ends with the current piece; the rest goes to others.
_LONG_BATCH = 2.0
#: Seconds for the requester to fetch the result of a worker's last task.
_FETCH_TIMEOUT = 10.0
_POLL_INTERVAL = 0.1


class RunPlugin(WorkerPlugin):
    """Settings of a run, which Dask sends to each worker once, including later ones."""

    def __init__(self, run: str, settings: WorkerSettings, *, is_local: bool) -> None:
        self.name = run
        self.settings = settings
        self.release = Release.here()
        self.is_local = is_local

    def setup(self, worker: Worker) -> None:  # noqa: ARG002  # As `WorkerPlugin` has it.
        """Leave Ctrl-C to the parent process, which ends this one."""
        if self.is_local and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(frozen=True, slots=True)
class WorkAnswer(Generic[Answer]):
    """Answers with their time and worker; else why that worker is unfit."""

    #: Answers of the first one or more pieces of work, in order.
    answers: tuple[Answer, ...]
    seconds: float
    worker: str
    unfit: str = ""
    #: Why the next piece has no answer, if it exceeded its time limit.
    late: str = ""


def perform(
    run: str, work: Work[Argument, Answer], arguments: Sequence[Argument]
) -> WorkAnswer[Answer]:
    """Run the pieces of work of a task, one after the other.

    The first piece is always run, and its exception is raised. The others are skipped after a long
    time, after a temporary failure, and from an exception on; the caller has to submit these again.
    A piece that exceeds its time limit cannot be stopped: if worker processes are restarted by a
    nanny, this process ends with it.
    """
    worker = get_worker()
    plugin = worker.plugins.get(run)
    if not isinstance(plugin, RunPlugin):
        why = f"the worker {worker.address} cannot take the settings of a run"
        return WorkAnswer((), 0.0, worker.address, why)
    if plugin.release != Release.here():
        why = describe_difference(worker.address, Release.here(), plugin.release)
        return WorkAnswer((), 0.0, worker.address, why)
    start = time.perf_counter()
    limit = plugin.settings.time_limit
    answers: list[Answer] = []
    late = ""
    for argument in arguments:
        ended = ended_within(
            limit + min(limit, _LATE_SECONDS),
            partial(work, plugin.settings, argument),
            work.__name__,
        )
        if ended is None:
            if worker.nanny is not None:
                worker.loop.add_callback(_replace_worker, worker, worker.get_current_task())
            late = describe_timeout("it", limit)
            break
        if answers and ended.exception() is not None:
            break
        answers.append(ended.result())
        if is_temporary(answers[-1]) or time.perf_counter() - start > _LONG_BATCH:
            break
    seconds = time.perf_counter() - start
    return WorkAnswer(tuple(answers), seconds, worker.address, late=late)


async def _replace_worker(worker: Worker, key: Any) -> None:
    """Close a worker whose nanny restarts it, after the result of its task was fetched.

    An unfetched result would be computed again, since closing a worker counts against no task.
    """
    left = _FETCH_TIMEOUT
    while (task := worker.state.tasks.get(key)) is not None and left > 0:
        if task.state != "executing":
            left -= _POLL_INTERVAL
        await asyncio.sleep(_POLL_INTERVAL)
    await worker.close_gracefully(restart=True)
