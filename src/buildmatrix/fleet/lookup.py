"""Lookup of earlier runs' answers by the process that submits the work.

Most images are unchanged in a second run. For each, the registry is asked to resolve the tag, and
the store for the result, which costs less than submitting it to a worker. If nothing else is left,
no cluster is started.

Nothing waits here, and no error is reported: images without an answer are left to workers.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Protocol

from buildmatrix.facts.trees.base import Closing
from buildmatrix.fleet.answers import RememberedImage, RememberedResults
from buildmatrix.fleet.context import CachedDocuments, WorkerContext
from buildmatrix.fleet.model import ImageTask, Subject, WorkerSettings
from buildmatrix.fleet.work import end_without_image, load_stored_answer, make_result_key
from buildmatrix.net.http.failures import Patience, RequestError
from buildmatrix.net.registry.reference import Reference, is_digest
from buildmatrix.reports.fleet.model import FleetResult
from buildmatrix.sources.images import NothingToRun, image_documents

#: The end of an image, or else the image with new data.
LookedUp = ImageTask | Subject


class AnswerSource(Protocol):
    """Looks up answers of earlier runs, and saves those of this run for later ones."""

    def __call__(self, subject: Subject) -> LookedUp:
        """See `LookedUp`."""

    def keep(self, task: ImageTask, results: Sequence[FleetResult]) -> None:
        """Record these results, which the store has, for a subject's current meaning."""

    def save(self) -> Sequence[str]:
        """Save the recorded results for later runs; return sentences about failures."""


#: Number of threads: enough for a near and for a far registry and store. Useless threads take a
#: fifth more processor time, since they wait for each other.
FEWEST_THREADS = 2
THREADS = 8
#: Waiting time per image, in seconds, that indicates a far server.
_FAR_SECONDS = 0.015
#: Images per thread at once.
_AT_ONCE = 20
_PATIENCE = Patience(tries=1, connect=3.0, silence=5.0, request=6.0)
#: Failures after which a registry is left to workers.
_FAILURES = 3


class AnswerLookup(Closing):
    """Looks up answers with one machine's cache and store; thread-safe."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._context = WorkerContext(settings, _PATIENCE)
        self._documents = CachedDocuments(self._context, asks=False)
        self._remembered = RememberedResults(self._context.cache, settings)
        self._failures = Counter[str]()

    def __call__(self, subject: Subject) -> LookedUp:
        """Return an earlier run's answer about an image, or the subject for workers."""
        # Workers report the error.
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
            key = make_result_key(self._context, subject, digest)
            self._remembered.keep(Reference.parse(subject.reference), digest, key, results)

    def save(self) -> Sequence[str]:
        """See `LookUp.save`."""
        self._remembered.save()
        return self._context.notes()

    def close(self) -> None:
        """Close all connections."""
        self._context.close()

    def _pinned(self, reference: Reference, image: RememberedImage | None) -> Reference | None:
        """Resolve a reference now; None if its registry is not to be asked again."""
        if self._failures[reference.host] >= _FAILURES:
            return None
        try:
            known = image.digest if image is not None and is_digest(image.digest) else ""
            return reference.at(
                self._context.ask(lambda: self._context.registry.digest(reference, known))
            )
        except RequestError as error:
            # A missing image says nothing about others.
            self._failures[reference.host] += error.status != 404
            raise

    def _answer(
        self, subject: Subject, pinned: Reference, remembered: RememberedImage | None
    ) -> ImageTask | None:
        context = self._context
        key = make_result_key(context, subject, pinned.digest)
        if remembered is not None and (remembered.digest, remembered.key) == (pinned.digest, key):
            return ImageTask(
                subject=subject,
                reference=str(pinned),
                pinned=pinned.digest,
                results=remembered.results(),
                is_stored=True,
                is_kept=True,
            )
        task = load_stored_answer(context, subject, pinned)
        if task is None:
            try:
                image = image_documents(self._documents, pinned, context.settings.platform)
            except NothingToRun as error:
                return end_without_image(subject, pinned, error)
            # An index was saved under its own digest, and results under that of the image.
            if image.reference == pinned:
                return None
            task = load_stored_answer(context, subject, pinned, image.reference)
        if task is not None:
            self.keep(task, task.results)
        return task


async def look_up_all(
    look_up: AnswerSource, subjects: Sequence[Subject]
) -> AsyncIterator[LookedUp]:
    """Look up all subjects, with several threads and roughly in order."""
    ended = threading.Event()

    def some(start: int) -> tuple[list[LookedUp], float]:
        """Return answers, and the seconds that each image waited."""
        began, worked = time.monotonic(), time.thread_time()
        chunk = subjects[start : start + _AT_ONCE]
        answers = [look_up(subject) for subject in chunk if not ended.is_set()]
        waited = time.monotonic() - began - (time.thread_time() - worked)
        return answers, waited / len(chunk)

    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(THREADS, "lookup")
    starts = iter(range(0, len(subjects), _AT_ONCE))
    threads = FEWEST_THREADS
    running = {loop.run_in_executor(pool, some, start) for start in islice(starts, threads)}
    try:
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                answers, waited = await future
                threads = adjust_threads(threads, waited)
                for answer in answers:
                    yield answer
            free = max(0, threads - len(running))
            running |= {loop.run_in_executor(pool, some, start) for start in islice(starts, free)}
    finally:
        ended.set()
        pool.shutdown(wait=False, cancel_futures=True)


def adjust_threads(threads: int, waited: float) -> int:
    """Return the useful number of threads for this waiting time per image."""
    return min(2 * threads, THREADS) if waited > _FAR_SECONDS else threads
