"""Workers of a Dask cluster: fitness, preparation for a run, and batches of small tasks."""

from __future__ import annotations

import asyncio
import platform
import signal
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Generic, TypeVar

from distributed import Client, Worker, get_worker
from distributed.diagnostics.plugin import WorkerPlugin
from msgspec import Struct

from buildmatrix import __version__
from buildmatrix.base.errors import BuildmatrixError, ComponentError
from buildmatrix.base.text import shown
from buildmatrix.base.threads import ended_within
from buildmatrix.facts.inventory.model import SCHEMA
from buildmatrix.fleet.model import (
    LateError,
    RequeuedError,
    Work,
    WorkerAnswer,
    WorkerKilledError,
    WorkError,
    WorkerSettings,
    describe_timeout,
)
from buildmatrix.images.store.cache import source_digest
from buildmatrix.images.store.shared import SharedEntries, open_storage

# Fitness: workers with the same results as this process.
#
# All their facts and results go into one store and one report. A worker with another version, or
# with other sources or vendor data of the same version, could judge the same image differently. One
# that does not reach the store would read everything again, and save nothing for others.


#: Test entry that shows if workers reach the same store: its kind, its content; timeout in seconds.
_KIND = "workers"
_MARK = b"a run was here"
_PATIENCE = 20.0


@cache
def find_release() -> str:
    """Return the versions of this installation: others may judge an image differently.

    They include the schema of the facts in the store, and digests of the bundled vendor data and
    of all sources.
    """
    python = ".".join(platform.python_version_tuple()[:2])
    return (
        f"buildmatrix {__version__} (facts {SCHEMA}, catalogue {source_digest('catalogue')[:8]}, "
        f"sources {source_digest()[:8]}), Python {python}"
    )


def find_unfit(releases: Mapping[str, str | BaseException]) -> str:
    """Return why workers cannot be used, in one sentence; empty if all can."""
    here = find_release()
    for address, release in sorted(releases.items()):
        if isinstance(release, ModuleNotFoundError):
            return (
                f"the worker {address} has no {release.name}; install the same buildmatrix there: "
                f"pip install 'buildmatrix[fleet]=={__version__}'"
            )
        if isinstance(release, BaseException):
            return f"the worker {address} does not say what it runs: {shown(str(release))}"
        if not isinstance(release, str):
            return f"the worker {address} runs another buildmatrix; install {__version__} there"
        if release != here:
            return describe_difference(address, release, here)
    return ""


def describe_difference(address: str, there: str, here: str) -> str:
    """Return the sentence about a worker with another release."""
    return (
        f"the worker {address} runs {there}, and here is {here}: verdicts could differ; install "
        "the same versions on both"
    )


def mark_store(store: str, run: str) -> str:
    """Leave an entry in the store for `check_mark`; return the reason if that fails."""
    entries, troubles = _open_store(store)
    entries.write(_KIND, run, (_MARK,))
    return " ".join(troubles)


def check_mark(store: str, run: str) -> str:
    """Return why this worker does not find the entry of `mark_store`; empty if it does.

    A store that does not respond at the moment fails no run: the report mentions it.
    """
    try:
        entries, troubles = _open_store(store)
    except BuildmatrixError as error:
        return error.message
    is_found = entries.read(_KIND, run, len(_MARK)) == _MARK
    return "" if troubles or is_found else "there is nothing of the kind"


def _open_store(store: str) -> tuple[SharedEntries, list[str]]:
    """Open the store; problems with it are added to the list."""
    troubles: list[str] = []
    return SharedEntries(open_storage(store), store, troubles.append, patience=_PATIENCE), troubles


# Execution of tasks


Argument = TypeVar("Argument")
Answer = TypeVar("Answer", bound=WorkerAnswer)

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
        self.release = find_release()
        self.is_local = is_local

    def setup(self, worker: Worker) -> None:  # noqa: ARG002  # As `WorkerPlugin` has it.
        """Leave Ctrl-C to the parent process, which ends this one."""
        if self.is_local and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


class WorkAnswer(Struct, Generic[Answer], frozen=True):
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
    if plugin.release != (here := find_release()):
        why = describe_difference(worker.address, here, plugin.release)
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
        if answers[-1].again or time.perf_counter() - start > _LONG_BATCH:
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


# Preparation for a run: same code, same store, its settings.
#
# Workers may end at any time: Dask starts others, which learn of the run from its plugin.


#: Attempts to ask and instruct workers while some of them end, and seconds between these.
_MOST_ASKED = 10
_PAUSE = 0.5


async def prepare_workers(client: Client, where: str, plugin: RunPlugin) -> Mapping[str, int]:
    """Give all workers the settings of a run; return their addresses with thread counts.

    Raises `ComponentError` if one is unfit or reaches another store, or none stays.
    """
    store = plugin.settings.store
    try:
        # Those that end meanwhile are asked again, or are gone.
        for _ in range(_MOST_ASKED):
            releases: dict[str, str | BaseException] = await client.run(
                find_release, on_error="return"
            )
            if not any(isinstance(release, OSError) for release in releases.values()):
                break
            await asyncio.sleep(_PAUSE)
        if problem := find_unfit(releases):
            raise ComponentError(problem)
        if store and not plugin.is_local:
            await _check_store(client, store, plugin.name, sorted(releases))
        await _hand_out(client, where, plugin)
        threads: Mapping[str, int] = await client.nthreads()
    except OSError as error:
        raise make_scheduler_lost(where) from error
    return threads


async def _hand_out(client: Client, where: str, plugin: RunPlugin) -> None:
    """Send the settings of a run to all workers. Raises OSError if the scheduler is gone.

    If a worker ends meanwhile, the scheduler closes this client's connection.
    """
    for _ in range(_MOST_ASKED):
        try:
            await client.register_plugin(plugin)
            return
        except OSError:
            if client.status != "running":
                raise
        await asyncio.sleep(_PAUSE)
    raise ComponentError(
        f"the workers of {where} end as soon as they receive this run; give each more memory, "
        "or find out why they end, and run the same command again"
    )


async def _check_store(client: Client, store: str, run: str, workers: Sequence[str]) -> None:
    """Raise `ComponentError` if a worker does not reach the store of the first one."""
    if len(workers) < 2:
        return
    first, *others = workers
    troubles = await client.run(mark_store, store, run, workers=[first], on_error="return")
    # The report mentions a store that no worker can write to.
    if not any(troubles.values()):
        answers = await client.run(check_mark, store, run, workers=others, on_error="return")
        # Workers that ended meanwhile do not count.
        missing = {who: why for who, why in answers.items() if why and not isinstance(why, OSError)}
        for address, why in sorted(missing.items()):
            raise ComponentError(
                f"the worker {address} does not find in the store {shown(store)} what the worker "
                f"{first} has just left there ({shown(str(why))}); have all workers reach the same "
                "store, or leave --store out"
            )


def make_scheduler_lost(where: str) -> ComponentError:
    """Return the error of a run whose scheduler is gone."""
    return ComponentError(
        f"{where} was lost; results until then are in the store: run the same command again to "
        "continue"
    )


# Batches of small tasks that arrive while workers are busy.
#
# A task costs Dask about as much processor time on both ends as resolving a tag, so a task per
# piece would double the cost of a fleet of small images. A batch is no larger than the share of the
# waiting pieces per worker thread.


#: Pieces of one batch. At 16, the cost of a task is small compared to its work.
_MOST = 16
#: Batches per worker thread: the current one, and the next. The number of workers may grow.
_FOR_EACH_THREAD = 2
_FEWEST = 8


class _Piece(Struct, Generic[Argument, Answer], frozen=True):
    argument: Argument
    key: str
    #: The address of a worker, and its answer.
    answer: asyncio.Future[tuple[str, Answer]]


class Batches(Generic[Argument, Answer]):
    """Pieces of one kind of work for `threads` of workers. For one event loop.

    `hand_out` submits these arguments to a worker, in order, under a name; see `perform`.
    """

    def __init__(
        self,
        hand_out: Callable[[Sequence[Argument], str], Awaitable[WorkAnswer[Answer]]],
        threads: int,
    ) -> None:
        self._hand_out = hand_out
        self._threads = threads
        self._free = max(_FEWEST, _FOR_EACH_THREAD * threads)
        self._waiting: deque[_Piece[Argument, Answer]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, argument: Argument, key: str) -> tuple[str, Answer]:
        """Return the address of a worker, and its answer.

        Raises the exceptions of `hand_out`: `WorkerKilledError` also if another piece of the batch
        killed the workers, and `RequeuedError` if it was not tried, since an earlier piece got a
        temporary failure.
        """
        loop = asyncio.get_running_loop()
        piece: _Piece[Argument, Answer] = _Piece(argument, key, loop.create_future())
        self._waiting.append(piece)
        # Includes others that ask at the same time.
        loop.call_soon(self._submit_batches)
        return await piece.answer

    def cancel(self) -> None:
        """Cancel all running batches."""
        for task in self._tasks:
            task.cancel()

    def _submit_batches(self) -> None:
        # The same for each worker.
        number = min(_MOST, -(-len(self._waiting) // self._threads))
        while self._waiting and self._free:
            batch = [self._waiting.popleft() for _ in range(min(number, len(self._waiting)))]
            # The requester may be gone.
            if batch := [piece for piece in batch if not piece.answer.done()]:
                self._free -= 1
                task = asyncio.create_task(self._run_batch(batch))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _run_batch(self, batch: Sequence[_Piece[Argument, Answer]]) -> None:
        others = len(batch) - 1
        name = f"{batch[0].key} and {others} more" if others else batch[0].key
        done = 1
        try:
            answered = await self._hand_out([piece.argument for piece in batch], name)
        except WorkerKilledError:
            done = len(batch)
            for piece in batch:
                _fail_piece(piece, WorkerKilledError())
        except WorkError as error:
            _fail_piece(batch[0], error)
        except BaseException as error:
            done = len(batch)
            for piece in batch:
                _fail_piece(piece, error)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            done = len(answered.answers)
            for piece, answer in zip(batch, answered.answers, strict=False):
                if not piece.answer.done():
                    piece.answer.set_result((answered.worker, answer))
            if answered.late:
                _fail_piece(batch[done], LateError(answered.late))
                done += 1
            elif answered.answers[-1].again:
                # Waiting requesters must learn of it before more is asked.
                for piece in (*batch[done:], *self._waiting):
                    _fail_piece(piece, RequeuedError())
                self._waiting.clear()
                done = len(batch)
        finally:
            self._waiting.extendleft(reversed(batch[done:]))
            self._free += 1
            self._submit_batches()


def _fail_piece(piece: _Piece[Argument, Answer], error: BaseException) -> None:
    if piece.answer.done():
        return
    if isinstance(error, asyncio.CancelledError):
        piece.answer.cancel()
    else:
        piece.answer.set_exception(error)
