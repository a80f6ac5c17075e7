"""Dask cluster: connection, and transfer of work and answers.

The scheduler, the processes and their limits are those of Dask distributed
(https://distributed.dask.org). A task consists of a function's name and a few hundred bytes: each
worker gets the settings once, and finds credentials where it runs.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeVar

import dask
from distributed import Client, KilledWorker, LocalCluster
from distributed.client import FutureCancelledError
from distributed.security import Security

from buildmatrix.base.errors import ComponentError
from buildmatrix.base.text import shown
from buildmatrix.facts.trees.base import defect
from buildmatrix.fleet.model import (
    ClusterOptions,
    LateError,
    Work,
    WorkerAnswer,
    WorkerKilledError,
    WorkError,
    WorkerSettings,
)
from buildmatrix.fleet.workers import (
    Batches,
    RunPlugin,
    WorkAnswer,
    make_scheduler_lost,
    perform,
    prepare_workers,
)

Argument = TypeVar("Argument")
Answer = TypeVar("Answer", bound=WorkerAnswer)

#: Memory limit of a worker in a local cluster: above it, the worker is killed and its task given to
#: another. Reading one layer needs far less.
_WORKER_MEMORY = 2 << 30
#: Seconds for the scheduler to respond, and for the first worker: batch systems start them when
#: they have capacity.
_CONNECT = 10.0
_FIRST_WORKER = 600.0
#: Seconds without any worker after which a run ends.
_NO_WORKER = 600.0
#: Advice. Dask does not know about pods or jobs that never start.
_START = "start some with `dask worker`, or ask your batch system or Kubernetes why none starts"
#: Worker deaths that are reported.
_MANY_DIED = 3
#: Seconds for a cluster to end, and for its processes.
_END = 2.0
_GRACE = 0.5
#: Topic of all workers' events in Dask.
_ALL = "all"
#: Settings of a local cluster, by their names in Dask's configuration.
_LOCAL: dict[str, object] = {
    # Measured from the death of a worker until it is replaced.
    "distributed.deploy.lost-worker-timeout": "1 hour",
    # A task whose worker died twice is returned, and retried when nothing else runs.
    "distributed.scheduler.allowed-failures": 1,
    # Memory left by a task would pause its worker forever. Results are small.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    # Unused, and takes time.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    # Dask sets MALLOC_TRIM_THRESHOLD_, with which glibc maps and unmaps every block of 128 KB and
    # more (mallopt(3)): that takes an eighth of the time of a first run, and saves some MB. Arenas
    # per thread would each hold memory that only the active one needs.
    "distributed.nanny.pre-spawn-environ": {"MALLOC_ARENA_MAX": "2"},
}


class Cluster:
    """Processes that work on a fleet, on one or many machines. Made by `connected`."""

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
        #: True if workers have the credentials of this process.
        self.is_local = client.cluster is not None
        #: Counts at the start.
        self.workers = len(threads)
        self.threads = sum(threads.values())
        #: Seconds of work of all workers together.
        self.busy = 0.0
        #: Dask keys of tasks without an answer yet.
        self._awaited: set[object] = set()
        #: Tasks that raised, tasks on workers that died, and tasks given up for that.
        self._raised = self._lost = self._given_up = 0
        #: Workers that died with work.
        self._died = 0
        #: By work and priority.
        self._batches: dict[tuple[object, int], Batches[Any, Any]] = {}

    @property
    def repeated(self) -> int:
        """Number of retried tasks: they raised, or their workers died."""
        return self._raised + self._lost - self._given_up

    def on_scheduler_event(self, event: tuple[float, Any]) -> None:
        """Record the scheduler's events about workers."""
        message = event[1]
        if isinstance(message, Mapping) and message.get("action") == "remove-worker":
            # Among computed answers, Dask also lists those already delivered, which it forgets
            # later.
            keys = {*message.get("processing-tasks", ()), *message.get("lost-computed-tasks", ())}
            own = len(keys & self._awaited)
            self._lost += own
            self._died += own > 0
            if own and self._died == _MANY_DIED:
                self._note(
                    f"{self._died} workers of {self._where} ended while they had work; if that "
                    "continues, give each more memory, or find out why they end"
                )

    async def run_work(
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
        """Run `work` on a worker; equal keys are equal work, which runs once.

        Workers in `avoid` are used only if there are no others; `seen` is called with the worker's
        address and the answer. `is_small` work shares tasks with others of its kind, see `Batches`.

        Raises `WorkerKilledError` if it killed its workers, `WorkError` if it raised,
        `RequeuedError` if it is small and was not tried, and `ComponentError` if the scheduler is
        gone or a worker is unfit.
        """
        others: list[str] = []
        if avoid:
            # None if the scheduler does not respond.
            with suppress(OSError, TimeoutError):
                others = [item for item in await self._client.nthreads() if item not in avoid]
        submit = partial(self._submit, work, priority)

        async def run_alone(key: str) -> tuple[str, Answer]:
            answered = await submit((argument,), key, others)
            if answered.late:
                raise LateError(answered.late)
            return answered.worker, answered.answers[0]

        try:
            if is_small and not others:
                batches: Batches[Argument, Answer] = self._batches.setdefault(
                    (work, priority), Batches(submit, self.threads)
                )
                worker, answer = await batches.ask(argument, key)
            else:
                worker, answer = await run_alone(key)
        except LateError:
            raise
        except WorkError:
            # The worker may have lacked a resource.
            self._raised += 1
            worker, answer = await run_alone(f"{key} repeated")
        seen(worker, answer)
        return answer

    def cancel_work(self) -> None:
        """Cancel running work; no more calls are allowed."""
        for batches in self._batches.values():
            batches.cancel()

    async def _submit(
        self,
        work: Work[Argument, Answer],
        priority: int,
        arguments: Sequence[Argument],
        key: str,
        workers: Sequence[str] = (),
    ) -> WorkAnswer[Answer]:
        lost = make_scheduler_lost(self._where)
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
            answered: WorkAnswer[Answer] = await future
        except FutureCancelledError as error:
            raise lost from error
        except KilledWorker as error:
            self._given_up += 1
            raise WorkerKilledError from error
        except Exception as error:
            if future.status != "error":
                # Not a worker's answer: the connection broke while one was in transit.
                raise lost from error
            raise WorkError(f"internal error, {defect(error)}; please report it") from error
        finally:
            self._awaited.discard(task_key)
        if answered.unfit:
            raise ComponentError(answered.unfit)
        self.busy += answered.seconds
        return answered

    async def watch_workers(self) -> None:
        """Raise `ComponentError` after a long time without any worker; else never return."""
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
async def connect(
    options: ClusterOptions, settings: WorkerSettings, note: Callable[[str], None]
) -> AsyncIterator[Cluster]:
    """Connect to the cluster named in the options, and end it after the `with` statement.

    `note` is called for slow steps and the dashboard's address. Raises `ComponentError` if there is
    no scheduler or no fit worker.
    """
    run = f"buildmatrix-{uuid.uuid4().hex[:12]}"
    # Its messages about lost connections are replaced with one sentence.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if options.scheduler:
        where = f"the Dask scheduler at {shown(options.scheduler)}"
        config: dict[str, object] = {"distributed.comm.timeouts.connect": _CONNECT}
        opened = _connect_scheduler(options.scheduler, where, note)
    else:
        where, config = "the Dask cluster of this machine", _LOCAL
        opened = _start_local(options.workers)
    with dask.config.set(config):
        async with (
            opened as client,
            _prepare_cluster(client, where, run, settings, note) as cluster,
        ):
            yield cluster


@asynccontextmanager
async def _connect_scheduler(
    address: str, where: str, note: Callable[[str], None]
) -> AsyncIterator[Client]:
    # Encryption and certificates come from Dask's own configuration.
    if address.startswith("tls://") and not Security().get_connection_args("client")["ssl_context"]:
        raise ComponentError(
            f"{shown(address)} accepts no connection without a certificate, and Dask's "
            "configuration names none here: set distributed.comm.tls (see docs/clusters.md)"
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
        if not _has_workers(client):
            note(f"{where} has no worker yet; waiting")
        try:
            # Typed as for blocking clients.
            wait: Any = client.wait_for_workers
            await wait(1, timeout=_FIRST_WORKER)
        except TimeoutError as error:
            raise ComponentError(
                f"{where} has had no worker for {_FIRST_WORKER:.0f} s; {_START}"
            ) from error
        yield client
    finally:
        with suppress(Exception):
            await asyncio.wait_for(client.close(timeout=_END), _END)


@asynccontextmanager
async def _start_local(workers: int) -> AsyncIterator[Client]:
    from distributed.system import MEMORY_LIMIT

    number = workers or os.cpu_count() or 1
    cluster = LocalCluster(
        n_workers=number,
        threads_per_worker=1,
        processes=True,
        asynchronous=True,
        host="127.0.0.1",
        # Access to a scheduler allows running code, so other users of the machine are kept out.
        security=Security.temporary(),
        protocol="tls://",
        # The server runs even without a dashboard, and is only for local use.
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": find_spec("bokeh") is not None},
        worker_dashboard_address=None,
        memory_limit=min(_WORKER_MEMORY, MEMORY_LIMIT // number),
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
        await _end_local(cluster)


async def _end_local(cluster: LocalCluster) -> None:
    """End a local cluster in any state of its processes: their results are in the store."""
    with suppress(Exception):
        async with asyncio.timeout(_END):
            for nanny in cluster.workers.values():
                nanny.auto_restart = False
            await asyncio.gather(
                *(nanny.kill(timeout=_GRACE) for nanny in cluster.workers.values())
            )
            # Typed as for blocking clusters.
            close: Any = cluster.close
            await close()
    for process in multiprocessing.active_children():
        if process.name.startswith("Dask Worker process"):
            process.kill()


def _has_workers(client: Client) -> bool:
    """True if there was a worker some seconds ago."""
    info = client.scheduler_info()
    # Newer versions of Dask update only the number, older ones the workers.
    return bool(info.get("n_workers", len(info["workers"])))


@asynccontextmanager
async def _prepare_cluster(
    client: Client,
    where: str,
    run: str,
    settings: WorkerSettings,
    note: Callable[[str], None],
) -> AsyncIterator[Cluster]:
    """Give the settings of a run to the cluster, if all its workers are fit."""
    is_local = client.cluster is not None
    threads = await prepare_workers(client, where, RunPlugin(run, settings, is_local=is_local))
    try:
        if client.dashboard_link and (find_spec("bokeh") or not is_local):
            note(f"dashboard: {client.dashboard_link}")
        cluster = Cluster(client, where, run, threads, note)
        client.subscribe_topic(_ALL, cluster.on_scheduler_event)
        try:
            yield cluster
        finally:
            cluster.cancel_work()
    finally:
        # The scheduler may be gone.
        with suppress(Exception):
            client.unsubscribe_topic(_ALL)
        if client.status == "running" and not is_local:
            with suppress(Exception):
                await asyncio.wait_for(client.unregister_worker_plugin(run), _END)
