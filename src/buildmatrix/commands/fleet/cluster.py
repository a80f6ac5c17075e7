"""Dask does the work side by side: which cluster, and how work gets there and back.

The scheduler, the processes and their limits are those of Dask distributed
(https://distributed.dask.org). What travels in a task is a function's name and a few hundred bytes:
the settings go to each worker once, and a worker finds credentials where it runs.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from typing import Any, TypeVar

import dask
from distributed import Client, KilledWorker, LocalCluster
from distributed.client import FutureCancelledError
from distributed.security import Security

from buildmatrix.commands.fleet.batches import Batches
from buildmatrix.commands.fleet.failing import LateError, WorkerKilledError, WorkError
from buildmatrix.commands.fleet.model import ClusterOptions, Work, WorkerSettings
from buildmatrix.commands.fleet.performing import Answered, RunPlugin, perform
from buildmatrix.commands.fleet.preparing import prepare, scheduler_lost
from buildmatrix.errors import ComponentError
from buildmatrix.text import shown
from buildmatrix.trees.base import defect

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")

#: Bytes of a worker of a local cluster, at most: one that needs more is ended, and its task is
#: given to another. What reading one layer needs is bounded far below.
_WORKER_MEMORY = 2 << 30
#: Seconds until a scheduler that was named has answered, and until it has a worker: batch systems
#: start them when they have room.
_CONNECT = 10.0
_FIRST_WORKER = 600.0
#: Seconds without any worker after which a run ends.
_NO_WORKER = 600.0
#: What to do about it. Where pods or jobs never start, Dask does not know of them.
_START = "start some with `dask worker`, or ask your batch system or Kubernetes why none starts"
#: Workers that may die before somebody is told.
_MANY_DIED = 3
#: Seconds that a cluster has to end, and that its processes have for that.
_END = 2.0
_GRACE = 0.5
#: Events of all workers, by Dask's name for them.
_ALL = "all"
#: Settings of a local cluster, by their names in Dask's configuration.
_LOCAL = {
    # It counts from when a worker dies to when the next one is there in its place.
    "distributed.deploy.lost-worker-timeout": "1 hour",
    # A task whose worker died twice is handed back; it gets another try when nothing else runs.
    "distributed.scheduler.allowed-failures": 1,
    # Memory that a task leaves behind would pause its worker for ever. Results are small.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    # Costs time, and nobody asks for it.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    # Dask sets MALLOC_TRIM_THRESHOLD_, with which glibc maps and unmaps every block of 128 KB and
    # more (mallopt(3)): an eighth of the time of a first run, and it saves some MB. Arenas for each
    # of many threads would hold what only the one at work needs.
    "distributed.nanny.pre-spawn-environ": {"MALLOC_ARENA_MAX": "2"},
}


class Cluster:
    """Processes that work on a fleet, on this machine or many. Made by `connected`."""

    def __init__(
        self,
        client: Client,
        where: str,
        run: str,
        threads: Mapping[str, int],
        note: Callable[[str], None],
    ) -> None:
        self._client = client
        self._where = where
        self._run = run
        self._note = note
        #: Whether workers have the credentials of this process.
        self.is_local = client.cluster is not None
        #: At the start.
        self.workers = len(threads)
        self.threads = sum(threads.values())
        #: Of the work itself, of all workers together.
        self.busy = 0.0
        #: Dask's keys of tasks whose answers have not come yet.
        self._awaited: set[object] = set()
        #: Tasks that raised, that were on workers which died, and that were given up for that.
        self._raised = self._lost = self._given_up = 0
        #: Workers that died while they had work.
        self._died = 0
        #: By the work that they are of, and its priority.
        self._batches: dict[tuple[object, int], Batches[Any, Any]] = {}

    @property
    def repeated(self) -> int:
        """Tasks that were tried again: they raised, or their workers died."""
        return self._raised + self._lost - self._given_up

    def heed(self, event: tuple[float, Any]) -> None:
        """Take note of what the scheduler says of all workers."""
        message = event[1]
        if isinstance(message, Mapping) and message.get("action") == "remove-worker":
            # Of computed answers, Dask also names those that have come: it forgets them later.
            keys = {*message.get("processing-tasks", ()), *message.get("lost-computed-tasks", ())}
            own = len(keys & self._awaited)
            self._lost += own
            self._died += own > 0
            if own and self._died == _MANY_DIED:
                self._note(
                    f"{self._died} workers of {self._where} ended while they had work; where that "
                    "goes on, give each more memory, or look at what ends them"
                )

    async def do(
        self,
        work: Work[Argument, Answer],
        argument: Argument,
        *,
        key: str,
        priority: int = 0,
        is_small: bool = False,
        avoid: Collection[str] = (),
        seen: Callable[[str, Answer], None] = lambda _worker, _answer: None,
    ) -> Answer:
        """Have `work` done by some worker; equal keys are equal work, which is done once.

        By one that is not in `avoid`, as far as there are others; `seen` is called with its address
        and the answer. What `is_small` shares tasks with others of its kind, see `Batches`.

        Raises `WorkerKilledError` where it killed its workers, `WorkError` where it raised,
        `PutBackError` where it is small and was not tried, and `ComponentError` where the scheduler
        is gone or a worker is unfit.
        """
        others = await self._workers_but(avoid) if avoid else []
        try:
            if is_small and not others:
                worker, answer = await self._batches_of(work, priority).answer(argument, key)
            else:
                worker, answer = await self._alone(work, argument, key, priority, others)
        except LateError:
            raise
        except WorkError:
            # The worker may have been short of something.
            self._raised += 1
            again = f"{key} repeated"
            worker, answer = await self._alone(work, argument, again, priority, others)
        seen(worker, answer)
        return answer

    def _batches_of(self, work: Work[Argument, Answer], priority: int) -> Batches[Argument, Answer]:
        if (work, priority) not in self._batches:
            self._batches[work, priority] = Batches(
                lambda arguments, key: self._answered(work, arguments, key, priority, ()),
                self.threads,
            )
        return self._batches[work, priority]

    async def _alone(
        self,
        work: Work[Argument, Answer],
        argument: Argument,
        key: str,
        priority: int,
        workers: Sequence[str],
    ) -> tuple[str, Answer]:
        answered = await self._answered(work, (argument,), key, priority, workers)
        if answered.late:
            raise LateError(answered.late)
        return answered.worker, answered.answers[0]

    def leave(self) -> None:
        """End what is under way, after which nobody may ask."""
        for batches in self._batches.values():
            batches.cancel()

    async def _answered(
        self,
        work: Work[Argument, Answer],
        arguments: Sequence[Argument],
        key: str,
        priority: int,
        workers: Sequence[str],
    ) -> Answered[Answer]:
        lost = scheduler_lost(self._where)
        if self._client.status != "running":
            raise lost
        task_key = (f"{work.__name__}-{self._run}", key)
        future = self._client.submit(
            perform,
            self._run,
            work,
            tuple(arguments),
            key=task_key,
            priority=priority,
            pure=False,
            workers=workers or None,
            allow_other_workers=bool(workers),
        )
        self._awaited.add(task_key)
        try:
            answered: Answered[Answer] = await future
        except FutureCancelledError as error:
            raise lost from error
        except KilledWorker as error:
            self._given_up += 1
            raise WorkerKilledError from error
        except Exception as error:
            if future.status != "error":
                # It is no answer of a worker: the connection broke while one was on its way.
                raise lost from error
            raise WorkError(f"internal error, {defect(error)}; please report it") from error
        finally:
            self._awaited.discard(task_key)
        if answered.unfit:
            raise ComponentError(answered.unfit)
        self.busy += answered.seconds
        return answered

    async def _workers_but(self, avoid: Collection[str]) -> list[str]:
        """Addresses of workers; none where the scheduler does not say."""
        with suppress(OSError, TimeoutError):
            return [worker for worker in await self._client.nthreads() if worker not in avoid]
        return []

    async def watch(self) -> None:
        """Raises `ComponentError` after a long time without any worker; otherwise it never ends."""
        now = asyncio.get_running_loop().time
        since = now()
        while True:
            await asyncio.sleep(_NO_WORKER / 100)
            if _has_workers(self._client):
                since = now()
            elif now() - since > _NO_WORKER:
                raise ComponentError(
                    f"{self._where} has had no worker for {_NO_WORKER:.0f} s; {_START}, and run "
                    "the same command again"
                )


@asynccontextmanager
async def connected(
    options: ClusterOptions, settings: WorkerSettings, note: Callable[[str], None]
) -> AsyncIterator[Cluster]:
    """The cluster that the options name, ready to work, and ended with the `with` statement.

    `note` is told what takes long, and where the dashboard is. Raises `ComponentError` where there
    is no scheduler or no worker that is fit.
    """
    run = f"buildmatrix-{uuid.uuid4().hex[:12]}"
    # What it would print of connections that are lost is said in a sentence.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if options.scheduler:
        with dask.config.set({"distributed.comm.timeouts.connect": _CONNECT}):
            async with _scheduler_at(options.scheduler) as client:
                where = f"the Dask scheduler at {shown(options.scheduler)}"
                await _wait_for_worker(client, where, note)
                async with _prepared(client, where, run, settings, note) as cluster:
                    yield cluster
        return
    where = "the Dask cluster of this machine"
    with dask.config.set(_LOCAL):
        async with (
            _local(options.workers) as client,
            _prepared(client, where, run, settings, note) as cluster,
        ):
            yield cluster


@asynccontextmanager
async def _scheduler_at(address: str) -> AsyncIterator[Client]:
    # Encryption and certificates are those of Dask's own configuration.
    if address.startswith("tls://") and not Security().get_connection_args("client")["ssl_context"]:
        raise ComponentError(
            f"{shown(address)} takes nobody without a certificate, and Dask's configuration names "
            "none here: set distributed.comm.tls (see docs/clusters.md)"
        )
    client: Client | None = None
    try:
        client = Client(
            address, asynchronous=True, timeout=_CONNECT, set_as_default=False, name="buildmatrix"
        )
        await client
    except (OSError, ValueError, TimeoutError, RuntimeError) as error:
        if client is not None:
            with suppress(Exception):
                await client.close(timeout=_END)
        raise ComponentError(
            f"no Dask scheduler answers at {shown(address)}: {shown(str(error))}; start one with "
            "`dask scheduler`, or leave --scheduler out for processes of this machine"
        ) from error
    try:
        yield client
    finally:
        with suppress(Exception):
            await asyncio.wait_for(client.close(timeout=_END), _END)


@asynccontextmanager
async def _local(workers: int) -> AsyncIterator[Client]:
    number = workers or os.cpu_count() or 1
    cluster = LocalCluster(
        n_workers=number,
        threads_per_worker=1,
        processes=True,
        asynchronous=True,
        host="127.0.0.1",
        # Whoever can speak to a scheduler can run code: others of this machine cannot.
        security=Security.temporary(),
        protocol="tls://",
        # There is a server without a dashboard, too, and it is for nobody else.
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": find_spec("bokeh") is not None},
        worker_dashboard_address=None,
        memory_limit=_memory(number),
        silence_logs=logging.CRITICAL,
    )
    try:
        try:
            await cluster
        except (OSError, RuntimeError) as error:
            raise ComponentError(f"no processes can be started here: {error}") from error
        async with Client(cluster, asynchronous=True, set_as_default=False) as client:
            yield client
    finally:
        await _end(cluster)


async def _end(cluster: LocalCluster) -> None:
    """End a local cluster, whatever its processes do: what they know is in the store."""
    with suppress(Exception):
        async with asyncio.timeout(_END):
            for nanny in cluster.workers.values():
                nanny.auto_restart = False
            await asyncio.gather(
                *(nanny.kill(timeout=_GRACE) for nanny in cluster.workers.values())
            )
            # Its type is that of clusters that block.
            close: Any = cluster.close
            await close()
    for process in multiprocessing.active_children():
        if process.name.startswith("Dask Worker process"):
            process.kill()


def _memory(workers: int) -> int:
    """Bytes that each of some workers may use on this machine."""
    from distributed.system import MEMORY_LIMIT

    return min(_WORKER_MEMORY, MEMORY_LIMIT // workers)


async def _wait_for_worker(client: Client, where: str, note: Callable[[str], None]) -> None:
    if not _has_workers(client):
        note(f"{where} has no worker yet; waiting")
    try:
        # Its type is that of clients that block.
        wait: Any = client.wait_for_workers
        await wait(1, timeout=_FIRST_WORKER)
    except TimeoutError as error:
        raise ComponentError(
            f"{where} has had no worker for {_FIRST_WORKER:.0f} s; {_START}"
        ) from error


def _has_workers(client: Client) -> bool:
    """Whether there was a worker some seconds ago."""
    info = client.scheduler_info()
    # Newer versions of Dask keep the number alone up to date, and older ones the workers.
    return bool(info.get("n_workers", len(info["workers"])))


@asynccontextmanager
async def _prepared(
    client: Client,
    where: str,
    run: str,
    settings: WorkerSettings,
    note: Callable[[str], None],
) -> AsyncIterator[Cluster]:
    """The cluster with the settings of a run, if all its workers are fit."""
    is_local = client.cluster is not None
    threads = await prepare(client, where, RunPlugin(run, settings, is_local=is_local))
    try:
        if client.dashboard_link and (find_spec("bokeh") or not is_local):
            note(f"dashboard: {client.dashboard_link}")
        cluster = Cluster(client, where, run, threads, note)
        client.subscribe_topic(_ALL, cluster.heed)
        try:
            yield cluster
        finally:
            cluster.leave()
    finally:
        # The scheduler would tell a client that it has gone.
        with suppress(Exception):
            client.unsubscribe_topic(_ALL)
        if client.status == "running" and not is_local:
            with suppress(Exception):
                await asyncio.wait_for(client.unregister_worker_plugin(run), _END)
