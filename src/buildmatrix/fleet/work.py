"""Work of a worker: resolve a reference, read a layer, judge an image.

These functions run in any process. Their results are saved in the store. Failures caused by a
registry or the bytes of an image are part of the answer; nothing is raised for them.

Most images are unchanged in a second run. For each, the registry is asked to resolve the tag, and
the store for the result, which costs less than submitting it to a worker. If nothing else is left,
no cluster is started.

Nothing waits here, and no error is reported: images without an answer are left to workers.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.text import size
from buildmatrix.facts.trees.base import Closing
from buildmatrix.fleet.context import (
    CachedDocuments,
    RememberedImage,
    RememberedResults,
    WorkerContext,
    find_context,
)
from buildmatrix.fleet.judging import (
    ImageQuestion,
    add_image,
    judge,
    make_unjudged,
    make_unresolved,
)
from buildmatrix.fleet.model import (
    SMALL_LAYER,
    Failure,
    ImageDone,
    ImageTask,
    LayerDone,
    LayerTask,
    Subject,
    WorkerSettings,
    describe_timeout,
    make_failure,
)
from buildmatrix.images.documents import Descriptor
from buildmatrix.images.image import LayerBlob, LayerReader
from buildmatrix.net.addresses import Patience, RequestError
from buildmatrix.net.registry_mirrors import Reference, is_digest
from buildmatrix.reports.fleet import FleetResult
from buildmatrix.sources.images import ImageDocuments, NothingToRun, image_documents

#: Size limit of a layer; the largest that registries accept has 52 GB (Amazon ECR).
LARGEST_LAYER = 64 << 30
#: Time limit in seconds of a layer read along with other work.
_SHORT = 5.0


def resolve(settings: WorkerSettings, subject: Subject) -> ImageTask:
    """Resolve a reference now, and list missing inputs of its verdict.

    This takes one request for a tag (HEAD, if the registry supports it), and none for a digest; all
    else comes from the store once any worker has read it. Images judged in an earlier run end here.
    """
    context = find_context(settings)
    task, _ = _resolve(context, subject)
    return replace(task, notes=context.notes())


def resolve_and_judge(settings: WorkerSettings, subject: Subject) -> ImageTask:
    """Resolve a reference; if little has to be read, also read and judge the image.

    It stops at the first failure, and the task lists what is missing: the run then submits one step
    after the other, and knows when to retry.
    """
    context = find_context(settings)
    task, image = _resolve(context, subject)
    if image is not None and sum(layer.size for layer in task.unread) <= SMALL_LAYER:
        task = _read_and_judge(context, task, image)
    return replace(task, notes=context.notes())


def _resolve(context: WorkerContext, subject: Subject) -> tuple[ImageTask, ImageDocuments | None]:
    """See `resolve`, without notes; also return the documents of an image to be judged."""
    pinned: Reference | None = None
    try:
        reference = Reference.parse(subject.reference)
        pinned = reference.at(
            subject.digest or context.ask(lambda: context.registry.digest(reference))
        )
        if stored := load_stored_answer(context, subject, pinned):
            return stored, None
        image = image_documents(context.documents, pinned, context.settings.platform)
        if image.reference != pinned and (
            stored := load_stored_answer(context, subject, pinned, image.reference)
        ):
            return stored, None
        unread = _find_unread(context, image)
        task = ImageTask(
            subject=subject, reference=str(image.reference), pinned=pinned.digest, unread=unread
        )
        return task, image
    except NothingToRun as error:
        failure = make_failure(error)
        if left_out := end_without_image(subject, pinned, error):
            return left_out, None
    except Exception as error:
        failure = make_failure(error, subject.reference)
    task = ImageTask(
        subject=subject,
        reference=str(pinned or subject.reference),
        results=make_unresolved(pinned, failure.text, _make_question(context, subject)),
        again=failure.again,
        denied=failure.denied,
        wait=failure.wait,
    )
    return task, None


def read_layer(settings: WorkerSettings, task: LayerTask) -> LayerDone:
    """Read a layer, once, so that the store has its facts."""
    context = find_context(settings)
    started = time.monotonic()
    reader = LayerReader(context.cache)
    failure = Failure()
    try:
        blob = _make_blob(context, Reference.parse(task.reference), task)
        if not reader.has(blob):
            context.ask(lambda: reader.facts(blob))
    except Exception as error:
        failure = make_failure(error, f"the layer {task.digest} of {task.reference} cannot be read")
    return LayerDone(
        digest=task.digest,
        bytes_read=reader.bytes_read,
        seconds=round(time.monotonic() - started, 3),
        error=failure.text or None,
        again=failure.again,
        denied=failure.denied,
        wait=failure.wait,
        notes=context.notes(),
    )


def judge_image(settings: WorkerSettings, task: ImageTask) -> ImageDone:
    """Judge an image for each backend; layers that the store lost are read again."""
    context = find_context(settings)
    started = time.monotonic()
    subject = task.subject
    reader = LayerReader(context.cache)
    results, failure, is_kept = task.results, Failure(), False
    if not results:
        pinned = Reference.parse(task.reference)
        image: ImageDocuments | None = None
        try:
            image = image_documents(context.documents, pinned, settings.platform)
            if task.failed:
                raise UndecidedError("; ".join(layer.error or "" for layer in task.failed))
            results, is_kept = context.ask(partial(_judge, context, subject, image, reader))
        except Exception as error:
            failure = make_failure(error, task.reference)
            question = _make_question(context, subject)
            if image is None:
                results = make_unresolved(pinned, failure.text, question)
            else:
                results = make_unjudged(image, failure.text, question)
    return ImageDone(
        results=results,
        bytes_read=reader.bytes_read,
        seconds=round(time.monotonic() - started, 3),
        is_kept=is_kept,
        again=failure.again,
        denied=failure.denied,
        wait=failure.wait,
        notes=context.notes(),
    )


def load_stored_answer(
    context: WorkerContext, subject: Subject, pinned: Reference, image: Reference | None = None
) -> ImageTask | None:
    """Return the end of an image judged in an earlier run; `pinned` may be an index with it."""
    image = image or pinned
    results = context.results.load(make_result_key(context, subject, image.digest))
    return _make_stored(subject, pinned, image, results) if results else None


def _make_stored(
    subject: Subject, pinned: Reference, image: Reference, results: tuple[FleetResult, ...]
) -> ImageTask:
    return ImageTask(
        subject=subject,
        reference=str(image),
        pinned=pinned.digest,
        results=results,
        is_stored=True,
        is_kept=True,
    )


def make_result_key(context: WorkerContext, subject: Subject, digest: str) -> str:
    """Return the key of all inputs of the results for an image with this digest."""
    # Labels belong to the image and are covered by its digest.
    return _make_question(context, subject).make_key(digest, {})


def end_without_image(
    subject: Subject, pinned: Reference | None, error: NothingToRun
) -> ImageTask | None:
    """Return the end of a subject that is not an image, unless containers really run it."""
    if subject.containers:
        return None
    return ImageTask(subject=subject, reference=str(pinned), left_out=make_failure(error).text)


def _find_unread(context: WorkerContext, image: ImageDocuments) -> tuple[LayerTask, ...]:
    """Return the layers missing from the store, each once. Raises `UndecidedError`."""
    reader = LayerReader(context.cache)
    tasks: dict[str, LayerTask] = {}
    for descriptor in image.manifest.layers:
        if descriptor.size > LARGEST_LAYER:
            raise UndecidedError(
                f"{image.reference}: its layer {descriptor.digest} has {size(descriptor.size)}, "
                f"and layers of more than {size(LARGEST_LAYER)} are not read"
            )
        blob = _make_blob(context, image.reference, descriptor)
        if descriptor.digest not in tasks and not reader.has(blob):
            tasks[descriptor.digest] = LayerTask(
                reference=str(image.reference),
                digest=descriptor.digest,
                size=descriptor.size,
                media_type=descriptor.media_type,
            )
    return tuple(tasks.values())


def _read_and_judge(context: WorkerContext, task: ImageTask, image: ImageDocuments) -> ImageTask:
    """See `resolve_and_judge`."""
    reader = LayerReader(context.cache)
    read: list[str] = []
    results: tuple[FleetResult, ...] = ()
    is_kept = False
    with suppress(Exception):
        for layer in task.unread:
            reader.facts(_make_blob(context, image.reference, layer, _SHORT))
            read.append(layer.digest)
        results, is_kept = _judge(context, task.subject, image, reader)
    return replace(
        task,
        unread=tuple(layer for layer in task.unread if layer.digest not in read),
        read=tuple(read),
        bytes_read=reader.bytes_read,
        results=results,
        is_kept=is_kept,
    )


def _judge(
    context: WorkerContext, subject: Subject, image: ImageDocuments, reader: LayerReader
) -> tuple[tuple[FleetResult, ...], bool]:
    """Judge an image; also return True if the results are saved. Raises reading errors."""
    question = _make_question(context, subject)
    blobs = [_make_blob(context, image.reference, layer) for layer in image.manifest.layers]
    results = context.stacks.results(image, blobs, question, reader)
    is_final = bool(results)
    if not results:
        is_final = all(layer.is_final for layer in reader.layers(blobs))
        inventory = reader.inventory(image.configuration, blobs, None)
        judged = judge(inventory, image.configuration.labels, question)
        results = tuple(add_image(item.result, image, question) for item in judged)
    if is_final:
        context.results.save(make_result_key(context, subject, image.reference.digest), results)
    return results, is_final


def _make_question(context: WorkerContext, subject: Subject) -> ImageQuestion:
    return ImageQuestion(subject, context.settings, context.catalogue)


def _make_blob(
    context: WorkerContext, reference: Reference, descriptor: Descriptor, limit: float = math.inf
) -> LayerBlob:
    """Return a layer, which is requested from the context's registry when opened.

    `limit` is the time limit of its bytes in seconds, within that of the settings.
    """
    seconds = min(limit, context.settings.time_limit)
    return LayerBlob(
        descriptor.digest,
        descriptor.size,
        lambda: _read_in_time(context, reference, descriptor, seconds),
    )


@contextmanager
def _read_in_time(
    context: WorkerContext, reference: Reference, descriptor: Descriptor, limit: float
) -> Iterator[Iterator[bytes]]:
    """Yield the bytes of a layer; raise `UndecidedError` at the time limit, however few arrive."""
    end = time.monotonic() + limit

    def passed(chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if time.monotonic() > end:
                what = f"reading the layer {descriptor.digest} of {reference.name}"
                raise UndecidedError(describe_timeout(what, limit))
            yield chunk

    with context.registry.blob(reference, descriptor) as chunks:
        yield passed(chunks)


#: The end of an image, or else the image with new data.
LookedUp = ImageTask | Subject


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
    """Looks up answers of earlier runs with one machine's cache and store, and saves those of this
    run for later ones; thread-safe.
    """

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
        """Record these results, which the store has, for a subject's current meaning."""
        if task.pinned:
            subject, digest = task.subject, task.pinned
            key = make_result_key(self._context, subject, digest)
            self._remembered.keep(Reference.parse(subject.reference), digest, key, results)

    def save(self) -> Sequence[str]:
        """Save the recorded results for later runs; return sentences about failures."""
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
            return _make_stored(subject, pinned, pinned, remembered.results())
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
    look_up: AnswerLookup, subjects: Sequence[Subject]
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
