"""A run over a fleet: subjects → resolved → layers that nobody has read → judged → results.

Each subject is a coroutine that asks the cluster for one thing after the other. A window bounds how
many are under way, so that 10,000 images do not become 100,000 tasks at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from buildmatrix.commands.fleet.access import Access, sentences
from buildmatrix.commands.fleet.answers import Alike, of_subject
from buildmatrix.commands.fleet.failing import LateError, WorkerKilledError, WorkError, too_long
from buildmatrix.commands.fleet.lookup import LookUp, looked_up
from buildmatrix.commands.fleet.model import (
    SMALL_LAYER,
    ClusterOptions,
    ImageDone,
    ImageTask,
    LayerDone,
    LayerTask,
    Subject,
    Work,
    WorkerSettings,
)
from buildmatrix.commands.fleet.running import KILLED, Outcome, to_end, watched
from buildmatrix.commands.fleet.waiting import Answer, AwayError, Waiting, WaitingOptions
from buildmatrix.phrases import count
from buildmatrix.progress import Progress
from buildmatrix.registry.reference import Reference
from buildmatrix.reports.fleet.model import FleetResult, FleetWork

if TYPE_CHECKING:
    from buildmatrix.commands.fleet.cluster import Cluster

Argument = TypeVar("Argument")
#: The line of a display that all of it is on.
_FLEET = "fleet"
#: Tasks of one worker that are handed out: one that it does, and some that wait for it.
_TASKS_PER_THREAD = 4
_FEWEST_TASKS = 16
#: Subjects under way for each task that is handed out: many wait for the same layer, and small work
#: goes out in batches.
_SUBJECTS_PER_TASK = 16
#: Layers of one image that are read side by side: one with a thousand slow ones ends with these.
_LAYERS_AT_ONCE = 16
#: What is handed out first: what ends an image, then what one waits for.
_RESOLVE, _READ, _JUDGE = 0, 1, 2
#: Workers that one question is put to, while they lack credentials that others have.
_MOST_WORKERS = 4
#: Of what is no image.
_MOST_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What is done for an image; see `commands.fleet.work`."""

    #: In this process, before anything is handed to a worker.
    look_up: Callable[[WorkerSettings], AbstractContextManager[LookUp]]
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
) -> Outcome:
    """Judge all subjects. Results are given to `write` as they come.

    A run that ends early (Ctrl-C, a scheduler that is gone) gives what it has, and says so. Raises
    `ComponentError` where there is nothing to work with.
    """
    run = _Run(
        subjects,
        settings,
        steps,
        progress,
        write,
        Waiting(waiting or WaitingOptions(), progress.note),
    )
    return asyncio.run(to_end(run, settings, options))


async def _each(subjects: Sequence[Subject]) -> AsyncIterator[Subject]:
    for subject in subjects:
        yield subject


def _left_out(reasons: Mapping[str, str]) -> Iterator[str]:
    """What is no image, by name while that can be read: a registry may be full of signatures."""
    for reference in sorted(reasons)[:_MOST_NAMED]:
        yield f"{reference} is left out: {reasons[reference]}"
    if len(reasons) > _MOST_NAMED:
        yield f"{count(len(reasons) - _MOST_NAMED, 'more reference')} left out: no images"


@dataclass(slots=True)
class _Run:
    """What is known so far."""

    subjects: Sequence[Subject]
    settings: WorkerSettings
    steps: Steps
    progress: Progress
    write: Callable[[FleetResult], None]
    waiting: Waiting
    results: list[FleetResult] = field(default_factory=list)
    alike: Alike = field(default_factory=Alike)
    #: Sentences, each once, in the order in which they came.
    missing: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    #: References of what is no image → why.
    left_out: dict[str, str] = field(default_factory=dict)
    #: Subjects that are through, and those of them whose results were in the store.
    done: int = 0
    stored: int = 0
    bytes_read: int = 0
    #: Digest → reading it; None where that killed workers. Each layer is read once in a run.
    layers: dict[str, asyncio.Task[LayerDone | None]] = field(default_factory=dict)
    #: Digests of layers that were read, here or on the way.
    read: set[str] = field(default_factory=set)
    #: Digest of an image → held while it is judged: what has many tags is judged once.
    images: dict[str, asyncio.Lock] = field(default_factory=dict)
    #: By the names of repositories.
    accesses: dict[str, Access] = field(default_factory=dict)
    #: What killed its workers, or was near when something did.
    suspects: list[Subject] = field(default_factory=list)
    #: Whether a worker died or did not end in time. Each thing is asked for by itself then: what a
    #: layer does to those that read it, it does once.
    is_careful: bool = False
    #: What is left to workers, and None for the end of it.
    unanswered: asyncio.Queue[Subject | None] = field(default_factory=asyncio.Queue)
    #: Answers of earlier runs, and of this run for later runs.
    look_up: LookUp = field(init=False)

    @contextlib.asynccontextmanager
    async def begun(self) -> AsyncIterator[bool]:
        """See `Run`: what earlier runs have said is looked up, also while workers are at work."""
        self._count()
        with self.steps.look_up(self.settings) as self.look_up:
            looking = asyncio.create_task(self._look_up())
            try:
                first = await self.unanswered.get()
                self.unanswered.put_nowait(first)
                yield first is not None
                # Raises what it raised.
                await looking
            finally:
                looking.cancel()
                self.notes |= dict.fromkeys(_left_out(self.left_out))
                self.notes |= dict.fromkeys(await asyncio.to_thread(self.look_up.save))

    async def _look_up(self) -> None:
        try:
            async for answer in looked_up(self.look_up, self.subjects):
                if isinstance(answer, Subject):
                    self.unanswered.put_nowait(answer)
                else:
                    self.finish(answer.subject, self.ended(answer) or ())
        finally:
            self.unanswered.put_nowait(None)

    async def left_to_workers(self) -> AsyncIterator[Subject]:
        """What nobody has taken yet; waits for what is still looked up."""
        while (subject := await self.unanswered.get()) is not None:
            yield subject
        self.unanswered.put_nowait(None)

    async def all(self, cluster: Cluster) -> None:
        """Judge what is left: first side by side, then each suspect alone."""
        try:
            await self._all(cluster)
        finally:
            if not cluster.is_local:
                self.notes |= dict.fromkeys(sentences(self.accesses))

    async def _all(self, cluster: Cluster) -> None:
        tasks = max(_FEWEST_TASKS, _TASKS_PER_THREAD * cluster.threads)
        async with watched(cluster) as group:
            crew = _Crew(self, cluster, group, asyncio.Semaphore(tasks))
            number = min(len(self.subjects), tasks * _SUBJECTS_PER_TASK)
            # Tasks of the group: where one of them ends the run, so do all others.
            takers = [group.create_task(crew.take(self.left_to_workers())) for _ in range(number)]
            if takers:
                await asyncio.wait(takers)
        if not self.suspects:
            return
        self.progress.note(
            f"{count(len(self.suspects), 'image')} lost the workers that worked on them; "
            "each is tried again, alone"
        )
        async with watched(cluster) as group:
            alone = _Crew(self, cluster, group, asyncio.Semaphore(1), is_last=True)
            await alone.take(_each(self.suspects))

    def ended(self, task: ImageTask) -> tuple[FleetResult, ...] | None:
        """The results of an image that is through, however many; None for one that is not."""
        self.took(task.bytes_read, task.notes, task.read)
        if task.left_out:
            self.left_out[task.subject.reference] = task.left_out
            return ()
        self.stored += task.is_stored
        return task.results or None

    def finish(self, subject: Subject, results: Sequence[FleetResult]) -> None:
        """A subject is through."""
        for item in results:
            result = of_subject(item, subject, self.alike)
            self.results.append(result)
            self.write(result)
        self.done += 1
        self._count()

    def took(self, bytes_read: int, notes: Sequence[str], layers: Sequence[str] = ()) -> None:
        """What a task cost, has to say, and has read."""
        self.bytes_read += bytes_read
        self.read.update(layers)
        self.notes |= dict.fromkeys(notes)
        if bytes_read:
            self.progress.part(_FLEET, self.bytes_read, None, "bytes")

    def left(self) -> str:
        """How many subjects are not through."""
        left = len(self.subjects) - self.done
        return f"{left} of {count(len(self.subjects), 'image')} not judged"

    def cost(self, cluster: Cluster | None, seconds: float) -> FleetWork:
        """The bill."""
        distinct = {layer.digest for result in self.results for layer in result.layers}
        return FleetWork(
            subjects=len(self.subjects),
            stored=self.stored,
            layers=len(distinct | self.layers.keys()),
            layers_read=len(self.read),
            bytes_read=self.bytes_read,
            retries=self.waiting.repeated
            + len(self.suspects)
            + (cluster.repeated if cluster else 0),
            workers=cluster.workers if cluster else 0,
            seconds=seconds,
            busy=cluster.busy if cluster else 0.0,
        )

    def _count(self) -> None:
        self.progress.part(_FLEET, self.done, len(self.subjects), "images")


@dataclass(frozen=True, slots=True)
class _Crew:
    """Coroutines that take subjects to the cluster, so many at a time as there are slots."""

    run: _Run
    cluster: Cluster
    group: asyncio.TaskGroup
    slots: asyncio.Semaphore
    #: Whether what fails now is not tried again.
    is_last: bool = False

    async def take(self, subjects: AsyncIterator[Subject]) -> None:
        """Judge the next subject until there are no more."""
        async for subject in subjects:
            try:
                results = await self._judged(subject)
            except (AwayError, WorkError) as error:
                self.run.is_careful |= isinstance(error, LateError)
                results = (self._undecided(subject, str(error)),)
            except WorkerKilledError:
                self.run.is_careful = True
                if not self.is_last:
                    self.run.suspects.append(subject)
                    continue
                results = (self._undecided(subject, KILLED.format("judging it")),)
            self.run.finish(subject, results)

    async def _judged(self, subject: Subject) -> tuple[FleetResult, ...]:
        reference = Reference.parse(subject.reference)
        key = subject.reference
        steps = self.run.steps
        first = steps.resolve if self.run.is_careful else steps.resolve_and_judge
        task = await self._ask(reference, first, subject, key, _RESOLVE)
        if (results := self.run.ended(task)) is not None:
            return self._kept(task, results, is_kept=task.is_kept)
        digest = Reference.parse(task.reference).digest
        turn = self.run.images.setdefault(digest, asyncio.Lock())
        waited = turn.locked()
        async with turn:
            if waited:
                # Another name of the same image: the store has its results by now.
                task = await self._ask(reference, steps.resolve, subject, f"{key} again", _RESOLVE)
                self.run.took(0, task.notes)
                if task.results:
                    return self._kept(task, task.results, is_kept=task.is_kept)
            failed = await self._failed(task.unread)
            done = await self._ask(
                reference, steps.judge, replace(task, failed=failed), key, _JUDGE
            )
        self.run.took(done.bytes_read, done.notes)
        return self._kept(task, done.results, is_kept=done.is_kept)

    def _kept(
        self, task: ImageTask, results: tuple[FleetResult, ...], *, is_kept: bool
    ) -> tuple[FleetResult, ...]:
        """The same results; what the store has of them is remembered."""
        if is_kept:
            self.run.look_up.keep(task, results)
        return results

    async def _failed(self, layers: Sequence[LayerTask]) -> tuple[LayerDone, ...]:
        """The layers of an image that cannot be read; what comes above them is not read for it."""
        seconds = 0.0
        for start in range(0, len(layers), _LAYERS_AT_ONCE):
            if seconds > self.run.settings.time_limit:
                error = too_long("reading its layers", self.run.settings.time_limit)
                return (LayerDone(digest="", bytes_read=0, seconds=seconds, error=error),)
            some = layers[start : start + _LAYERS_AT_ONCE]
            read = await asyncio.gather(*map(self._layer, some))
            if failed := tuple(done for done in read if done.error is not None):
                return failed
            seconds += sum(done.seconds for done in read)
        return ()

    async def _layer(self, layer: LayerTask) -> LayerDone:
        """How reading a layer ended, whoever needed it first."""
        reading = self.run.layers.get(layer.digest)
        if reading is None or (self.is_last and reading.done() and reading.result() is None):
            reading = self.group.create_task(self._read(layer))
            self.run.layers[layer.digest] = reading
        done = await asyncio.shield(reading)
        if done is None:
            raise WorkerKilledError
        return done

    async def _read(self, layer: LayerTask) -> LayerDone | None:
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
        except (AwayError, WorkError) as error:
            return LayerDone(digest=layer.digest, bytes_read=0, seconds=0.0, error=str(error))
        except WorkerKilledError:
            if not self.is_last:
                return None
            why = KILLED.format("reading it")
            return LayerDone(digest=layer.digest, bytes_read=0, seconds=0.0, error=why)
        self.run.took(done.bytes_read, done.notes, [layer.digest] if done.error is None else [])
        return done

    async def _ask(
        self,
        reference: Reference,
        function: Work[Argument, Answer],
        argument: Argument,
        key: str,
        priority: int,
        *,
        is_small: bool = True,
    ) -> Answer:
        tries = itertools.count()

        # Small work has bounds of its own.
        slot = contextlib.nullcontext() if is_small else self.slots

        access = self.run.accesses.setdefault(reference.name, Access())

        def seen(worker: str, answer: Answer) -> None:
            # What is judged has been read already, by anybody.
            if answer.denied or priority != _JUDGE:
                access.note(worker, denied=answer.denied)

        async def ask() -> Answer:
            for _ in range(_MOST_WORKERS):
                async with slot:
                    # A key of its own for each try: Dask may still have the answer to the one
                    # before.
                    numbered = f"{key} {next(tries)}{' alone' if self.is_last else ''}"
                    answer = await self.cluster.do(
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

        return await self.run.waiting.answer(reference.host, ask)

    def _undecided(self, subject: Subject, error: str) -> FleetResult:
        return FleetResult(
            repository="",
            digest=Reference.parse(subject.reference).digest,
            platform=self.run.settings.platform,
            state="undecided",
            error=error,
        )
