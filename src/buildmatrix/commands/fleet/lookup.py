"""Answers of earlier runs, found by the process that hands out the work.

Most images of a second run are what they were. For each, a registry is asked what its tag means,
and the store what was said of that: less than it costs to hand it to a worker. Where nothing else
is left, no cluster is started.

Nothing is waited for here, and nothing is said to be wrong: what has no answer is left to workers.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from buildmatrix.commands.fleet.context import KeptDocuments, WorkerContext
from buildmatrix.commands.fleet.model import ImageTask, Subject, WorkerSettings
from buildmatrix.commands.fleet.remembered import Remembered, RememberedImage
from buildmatrix.commands.fleet.work import no_image, result_key, stored_answer
from buildmatrix.http.failures import RequestError
from buildmatrix.http.patience import Patience
from buildmatrix.registry.digests import is_digest
from buildmatrix.registry.reference import Reference
from buildmatrix.reports.fleet.model import FleetResult
from buildmatrix.sources.registry import NothingToRun, image_documents
from buildmatrix.trees.base import Closing

#: The end of an image, or else the image, with what is known of it by now.
LookedUp = ImageTask | Subject


class LookUp(Protocol):
    """Looks for answers of earlier runs, and keeps those of this run for later runs."""

    def __call__(self, subject: Subject) -> LookedUp:
        """See `LookedUp`."""

    def keep(self, task: ImageTask, results: Sequence[FleetResult]) -> None:
        """Remember these results, which the store has, for what a subject means now."""

    def save(self) -> Sequence[str]:
        """Leave to later runs what was kept; sentences of what went wrong."""


#: Threads that ask: as many as are of use where registry and store are near, and far away. Those
#: that are of no use cost a fifth more processor time, as they wait for each other.
FEWEST_THREADS = 2
THREADS = 8
#: Seconds that an image waits for what is far away.
_FAR = 0.015
#: Images that each thread takes at once.
_AT_ONCE = 20
_PATIENCE = Patience(tries=1, connect=3.0, silence=5.0, request=6.0)
#: Failures after which a registry is left to workers.
_FAILURES = 3


class Lookup(Closing):
    """Looks for answers with what one machine has; for all threads at once."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._context = WorkerContext(settings, _PATIENCE)
        self._documents = KeptDocuments(self._context, asks=False)
        self._remembered = Remembered(self._context.cache, settings)
        self._failures = Counter[str]()

    def __call__(self, subject: Subject) -> LookedUp:
        """What an earlier run said of an image, or what it is that workers have to look at."""
        # They say what is wrong with it.
        with suppress(Exception):
            reference = Reference.parse(subject.reference)
            image = self._remembered.load(reference)
            pinned = self._pinned(reference, image)
            if pinned is not None:
                with suppress(Exception):
                    if task := self._answer(subject, pinned, image):
                        return task
                return replace(subject, digest=pinned.digest)
        return subject

    def keep(self, task: ImageTask, results: Sequence[FleetResult]) -> None:
        """See `LookUp.keep`."""
        if task.pinned:
            subject, digest = task.subject, task.pinned
            key = result_key(self._context, subject, digest)
            self._remembered.keep(Reference.parse(subject.reference), digest, key, results)

    def save(self) -> Sequence[str]:
        """See `LookUp.save`."""
        self._remembered.save()
        return self._context.notes()

    def close(self) -> None:
        """Close all connections."""
        self._context.close()

    def _pinned(self, reference: Reference, image: RememberedImage | None) -> Reference | None:
        """What a reference means now; None where its registry is not to be asked any more."""
        if self._failures[reference.host] >= _FAILURES:
            return None
        try:
            known = image.digest if image is not None and is_digest(image.digest) else ""
            return reference.at(
                self._context.asked(lambda: self._context.registry.digest(reference, known))
            )
        except RequestError as error:
            # That it is not there says nothing about others.
            self._failures[reference.host] += error.status != 404
            raise

    def _answer(
        self, subject: Subject, pinned: Reference, remembered: RememberedImage | None
    ) -> ImageTask | None:
        context = self._context
        key = result_key(context, subject, pinned.digest)
        if remembered is not None and (remembered.digest, remembered.key) == (pinned.digest, key):
            return ImageTask(
                subject=subject,
                reference=str(pinned),
                pinned=pinned.digest,
                results=remembered.results(),
                is_stored=True,
                is_kept=True,
            )
        task = stored_answer(context, subject, pinned)
        if task is None:
            try:
                image = image_documents(self._documents, pinned, context.settings.platform)
            except NothingToRun as error:
                return no_image(subject, pinned, error)
            # An index was kept under its own digest, and results under that of the image.
            if image.reference == pinned:
                return None
            task = stored_answer(context, subject, pinned, image.reference)
        if task is not None:
            self.keep(task, task.results)
        return task


async def looked_up(look_up: LookUp, subjects: Sequence[Subject]) -> AsyncIterator[LookedUp]:
    """All subjects, each looked up, with several threads and in about their order."""
    ended = threading.Event()

    def some(start: int) -> _Chunk:
        began, worked = time.monotonic(), time.thread_time()
        chunk = subjects[start : start + _AT_ONCE]
        answers = [look_up(subject) for subject in chunk if not ended.is_set()]
        waited = time.monotonic() - began - (time.thread_time() - worked)
        return _Chunk(answers, waited / len(chunk))

    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(THREADS, "lookup")
    starts = iter(range(0, len(subjects), _AT_ONCE))
    threads = FEWEST_THREADS
    running = {loop.run_in_executor(pool, some, start) for start in islice(starts, threads)}
    try:
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                chunk = await future
                threads = more_threads(threads, chunk.waited)
                for answer in chunk.answers:
                    yield answer
            free = max(0, threads - len(running))
            running |= {loop.run_in_executor(pool, some, start) for start in islice(starts, free)}
    finally:
        ended.set()
        pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Chunk:
    answers: list[LookedUp]
    #: Seconds for each image.
    waited: float


def more_threads(threads: int, waited: float) -> int:
    """How many threads are of use, where each of so many waited for so long for each image."""
    return min(2 * threads, THREADS) if waited > _FAR else threads
