"""Run over a fleet: subjects, resolved, their unread layers read, judged, results.

Each subject is a coroutine that submits one step after the other to the cluster. A window limits
their number, so that 10,000 images do not become 100,000 tasks at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import count
from buildmatrix.fleet.context import RepositoryAccess, add_subject, describe_problems
from buildmatrix.fleet.model import (
    SMALL_LAYER,
    BoundAnswer,
    ClusterOptions,
    ImageDone,
    ImageTask,
    LateError,
    LayerDone,
    LayerTask,
    RegistryUnavailableError,
    RegistryWaiting,
    Subject,
    WaitingOptions,
    Work,
    WorkerKilledError,
    WorkError,
    WorkerSettings,
    describe_timeout,
)
from buildmatrix.fleet.running import KILLED, Run, RunOutcome, run_to_end, watch_cluster
from buildmatrix.fleet.work import AnswerLookup, look_up_all
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.reports.fleet import FleetResult, FleetWork

if TYPE_CHECKING:
    from buildmatrix.fleet.cluster import Cluster

Argument = TypeVar("Argument")
#: Submitted tasks per worker thread: the current one, and some waiting.
_TASKS_PER_THREAD = 4
_FEWEST_TASKS = 16
#: Active subjects per submitted task: many wait for the same layer, and small work is submitted in
#: batches.
_SUBJECTS_PER_TASK = 16
#: Layers of one image read in parallel; reading a thousand slow ones stops after these.
_LAYERS_AT_ONCE = 16
#: Priorities: steps that finish an image first, then steps that others wait for.
_RESOLVE, _READ, _JUDGE = 0, 1, 2
#: Workers tried for one question, if they lack credentials that others have.
_MOST_WORKERS = 4
#: Number of listed references that are not images.
_MOST_NAMED = 10


class Steps(Struct, frozen=True, kw_only=True):
    """Steps for an image; see `fleet.work`."""

    #: In this process, before anything is submitted to a worker.
    look_up: Callable[[WorkerSettings], AbstractContextManager[AnswerLookup]]
    resolve: Work[Subject, ImageTask]
    resolve_and_judge: Work[Subject, ImageTask]
    read: Work[LayerTask, LayerDone]
    judge: Work[ImageTask, ImageDone]


def scan(
    subjects: Sequence[Subject],
    settings: WorkerSettings,
    steps: Steps,
    options: ClusterOptions,
    *,
    progress: Progress,
    write: Callable[[FleetResult], None] = lambda _: None,
    waiting: WaitingOptions | None = None,
) -> RunOutcome:
    """Judge all subjects. Results are passed to `write` as they arrive.

    A run that ends early (Ctrl-C, a lost scheduler) returns its partial results, and says so.
    Raises `ComponentError` if it cannot start.
    """
    run = _FleetRun(
        subjects=subjects,
        settings=settings,
        steps=steps,
        progress=progress,
        write=write,
        waiting=RegistryWaiting(waiting or WaitingOptions(), progress.note),
        total=len(subjects),
        noun="image",
    )
    return asyncio.run(run_to_end(run, settings, options))


async def _iterate(subjects: Sequence[Subject]) -> AsyncIterator[Subject]:
    for subject in subjects:
        yield subject


@dataclass(kw_only=True)
class _FleetRun(Run):
    """State of the run."""

    subjects: Sequence[Subject]
    steps: Steps
    #: References that are not images, with the reason.
    left_out: dict[str, str] = field(default_factory=dict)
    #: Digest to the task reading it; None if that killed workers. Each layer is read once per run.
    layers: dict[str, asyncio.Task[LayerDone | None]] = field(default_factory=dict)
    #: Digests of the layers read.
    read: set[str] = field(default_factory=set)
    #: Digest of an image to a lock held while it is judged: an image with many tags is judged once.
    images: dict[str, asyncio.Lock] = field(default_factory=dict)
    #: By repository name.
    accesses: dict[str, RepositoryAccess] = field(default_factory=dict)
    #: Subjects that killed their workers, or shared a batch with one that did.
    suspects: list[Subject] = field(default_factory=list)
    #: True after a worker died or exceeded its time limit. Then each step is submitted by itself,
    #: so that a problem with a layer affects its readers once.
    is_careful: bool = False
    #: Subjects left to workers, then None.
    unanswered: asyncio.Queue[Subject | None] = field(default_factory=asyncio.Queue)
    #: Answers of earlier runs, and of this run for later ones.
    look_up: AnswerLookup = field(init=False)

    @contextlib.asynccontextmanager
    async def start(self) -> AsyncIterator[bool]:
        """See `Run`: looks up earlier runs' answers, also while workers are busy."""
        self.count_done()
        with self.steps.look_up(self.settings) as self.look_up:
            looking = asyncio.create_task(self._look_up())
            try:
                waiting = [await self.unanswered.get()]
                # In their order: workers take nothing that is behind the end.
                while not self.unanswered.empty():
                    waiting.append(self.unanswered.get_nowait())
                for subject in waiting:
                    self.unanswered.put_nowait(subject)
                yield waiting[0] is not None
                # Raises its exception.
                await looking
            finally:
                looking.cancel()
                # A registry may be full of references that are not images.
                for reference, why in sorted(self.left_out.items())[:_MOST_NAMED]:
                    self.notes[f"{reference} is left out: {why}"] = None
                if (more := len(self.left_out) - _MOST_NAMED) > 0:
                    self.notes[f"{count(more, 'more reference')} left out: no images"] = None
                self.notes |= dict.fromkeys(await asyncio.to_thread(self.look_up.save))

    async def _look_up(self) -> None:
        try:
            async for answer in look_up_all(self.look_up, self.subjects):
                if isinstance(answer, Subject):
                    self.unanswered.put_nowait(answer)
                else:
                    self.finish_subject(answer.subject, self.complete_task(answer) or ())
        finally:
            self.unanswered.put_nowait(None)

    async def left_to_workers(self) -> AsyncIterator[Subject]:
        """Yield subjects not taken yet; waits for lookups in progress."""
        while (subject := await self.unanswered.get()) is not None:
            yield subject
        self.unanswered.put_nowait(None)

    async def judge_all(self, cluster: Cluster) -> None:
        """Judge the rest: first in parallel, then each suspect alone."""
        try:
            await self._judge_all(cluster)
        finally:
            if not cluster.is_local:
                self.notes |= dict.fromkeys(describe_problems(self.accesses))

    async def _judge_all(self, cluster: Cluster) -> None:
        tasks = max(_FEWEST_TASKS, _TASKS_PER_THREAD * cluster.threads)
        async with watch_cluster(cluster) as group:
            crew = _SubjectWorkers(self, cluster, group, asyncio.Semaphore(tasks))
            number = min(len(self.subjects), tasks * _SUBJECTS_PER_TASK)
            # Tasks of the group: one that ends the run ends all.
            takers = [group.create_task(crew.take(self.left_to_workers())) for _ in range(number)]
            if takers:
                await asyncio.wait(takers)
        if not self.suspects:
            return
        self.progress.note(
            f"{count(len(self.suspects), 'image')} lost the workers that worked on them; "
            "each is tried again, alone"
        )
        async with watch_cluster(cluster) as group:
            alone = _SubjectWorkers(self, cluster, group, asyncio.Semaphore(1), is_last=True)
            await alone.take(_iterate(self.suspects))

    def complete_task(self, task: ImageTask) -> tuple[FleetResult, ...] | None:
        """Return the results of a completed image, possibly none; None if it is not complete."""
        self.record_cost(task.bytes_read, task.notes, task.read)
        if task.left_out:
            self.left_out[task.subject.reference] = task.left_out
            return ()
        self.stored += task.is_stored
        return task.results or None

    def finish_subject(self, subject: Subject, results: Sequence[FleetResult]) -> None:
        """Record a completed subject."""
        for item in results:
            self.add(add_subject(item, subject, self.alike))
        self.count_done(1)

    def record_cost(
        self, bytes_read: int, notes: Sequence[str], layers: Sequence[str] = ()
    ) -> None:
        """Record the cost, the messages and the layers of a task."""
        self.bytes_read += bytes_read
        self.read.update(layers)
        self.notes |= dict.fromkeys(notes)
        if bytes_read:
            self.progress.part("fleet", self.bytes_read, None, "bytes")

    def sum_cost(self, cluster: Cluster | None, seconds: float) -> FleetWork:
        """Return the cost of the run."""
        distinct = {layer.digest for result in self.results for layer in result.layers}
        return replace(
            super().sum_cost(cluster, seconds),
            layers=len(distinct | self.layers.keys()),
            layers_read=len(self.read),
        )


class _SubjectWorkers(Struct, frozen=True):
    """Coroutines that submit subjects to the cluster, limited by the number of slots."""

    run: _FleetRun
    cluster: Cluster
    group: asyncio.TaskGroup
    slots: asyncio.Semaphore
    #: True if failures are not tried again.
    is_last: bool = False

    async def take(self, subjects: AsyncIterator[Subject]) -> None:
        """Judge the next subject until none is left."""
        async for subject in subjects:
            try:
                results = await self._judge(subject)
            except (RegistryUnavailableError, WorkError) as error:
                self.run.is_careful |= isinstance(error, LateError)
                results = (self._make_undecided(subject, str(error)),)
            except WorkerKilledError:
                self.run.is_careful = True
                if not self.is_last:
                    self.run.suspects.append(subject)
                    self.run.retries += 1
                    continue
                results = (self._make_undecided(subject, KILLED.format("judging it")),)
            self.run.finish_subject(subject, results)

    async def _judge(self, subject: Subject) -> tuple[FleetResult, ...]:
        reference = Reference.parse(subject.reference)
        key = subject.reference
        steps = self.run.steps
        first = steps.resolve if self.run.is_careful else steps.resolve_and_judge
        task = await self._ask(reference, first, subject, key, _RESOLVE)
        if (results := self.run.complete_task(task)) is not None:
            if task.is_kept:
                self.run.look_up.keep(task, results)
            return results
        digest = Reference.parse(task.reference).digest
        turn = self.run.images.setdefault(digest, asyncio.Lock())
        waited = turn.locked()
        async with turn:
            if waited:
                # Another name of the same image: the store has its results by now.
                task = await self._ask(reference, steps.resolve, subject, f"{key} again", _RESOLVE)
                self.run.record_cost(0, task.notes)
                if task.results:
                    if task.is_kept:
                        self.run.look_up.keep(task, task.results)
                    return task.results
            failed = await self._find_failed_layers(task.unread)
            done = await self._ask(
                reference, steps.judge, replace(task, failed=failed), key, _JUDGE
            )
        self.run.record_cost(done.bytes_read, done.notes)
        if done.is_kept:
            self.run.look_up.keep(task, done.results)
        return done.results

    async def _find_failed_layers(self, layers: Sequence[LayerTask]) -> tuple[LayerDone, ...]:
        """Return the layers of an image that cannot be read; layers above them are skipped."""
        seconds = 0.0
        for start in range(0, len(layers), _LAYERS_AT_ONCE):
            if seconds > self.run.settings.time_limit:
                error = describe_timeout("reading its layers", self.run.settings.time_limit)
                return (LayerDone(digest="", seconds=seconds, error=error),)
            some = layers[start : start + _LAYERS_AT_ONCE]
            read = await asyncio.gather(*map(self._read_layer_once, some))
            if failed := tuple(done for done in read if done.error is not None):
                return failed
            seconds += sum(done.seconds for done in read)
        return ()

    async def _read_layer_once(self, layer: LayerTask) -> LayerDone:
        """Return the result of reading a layer, started by any image."""
        reading = self.run.layers.get(layer.digest)
        if reading is None or (self.is_last and reading.done() and reading.result() is None):
            reading = self.group.create_task(self._read_layer(layer))
            self.run.layers[layer.digest] = reading
        done = await asyncio.shield(reading)
        if done is None:
            raise WorkerKilledError
        return done

    async def _read_layer(self, layer: LayerTask) -> LayerDone | None:
        reference = Reference.parse(layer.reference)
        try:
            done = await self._ask(
                reference,
                self.run.steps.read,
                layer,
                layer.digest,
                _READ,
                is_small=layer.size <= SMALL_LAYER,
            )
        except (RegistryUnavailableError, WorkError) as error:
            return LayerDone(digest=layer.digest, error=str(error))
        except WorkerKilledError:
            if not self.is_last:
                return None
            return LayerDone(digest=layer.digest, error=KILLED.format("reading it"))
        self.run.record_cost(
            done.bytes_read, done.notes, [layer.digest] if done.error is None else []
        )
        return done

    async def _ask(
        self,
        reference: Reference,
        function: Work[Argument, BoundAnswer],
        argument: Argument,
        key: str,
        priority: int,
        *,
        is_small: bool = True,
    ) -> BoundAnswer:
        tries = itertools.count()

        # Small work has limits of its own.
        slot = contextlib.nullcontext() if is_small else self.slots

        access = self.run.accesses.setdefault(reference.name, RepositoryAccess())

        def seen(worker: str, answer: BoundAnswer) -> None:
            # A judged image was read already, by any worker.
            if answer.denied or priority != _JUDGE:
                access.note(worker, denied=answer.denied)

        async def ask() -> BoundAnswer:
            for _ in range(_MOST_WORKERS):
                async with slot:
                    # Each try has its own key: Dask may still have the previous answer.
                    numbered = f"{key} {next(tries)}{' alone' if self.is_last else ''}"
                    answer = await self.cluster.run_work(
                        function,
                        argument,
                        key=numbered,
                        priority=priority,
                        is_small=is_small,
                        avoid=access.refused,
                        seen=seen,
                    )
                if not (answer.denied and access.may_have_more(self.cluster.workers)):
                    break
            return answer

        return await self.run.waiting.ask(reference.host, ask)

    def _make_undecided(self, subject: Subject, error: str) -> FleetResult:
        return FleetResult(
            repository="",
            digest=Reference.parse(subject.reference).digest,
            platform=self.run.settings.platform,
            state="undecided",
            error=error,
        )
