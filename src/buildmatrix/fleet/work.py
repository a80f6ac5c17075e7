"""Work of a worker: resolve a reference, read a layer, judge an image.

These functions run in any process. Their results are saved in the store. Failures caused by a
registry or the bytes of an image are part of the answer; nothing is raised for them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.text import size
from buildmatrix.fleet.context import WorkerContext, find_context
from buildmatrix.fleet.failures import Failure, describe_timeout, make_failure
from buildmatrix.fleet.judging import (
    ImageQuestion,
    add_image,
    judge,
    make_unjudged,
    make_unresolved,
)
from buildmatrix.fleet.model import (
    SMALL_LAYER,
    ImageDone,
    ImageTask,
    LayerDone,
    LayerTask,
    Subject,
    WorkerSettings,
)
from buildmatrix.images.layers.image import LayerBlob, LayerReader
from buildmatrix.images.oci.documents import Descriptor
from buildmatrix.net.registry.reference import Reference
from buildmatrix.reports.fleet.model import FleetResult
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
        blob = _make_blob(context, Reference.parse(task.reference), _make_descriptor(task))
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
    if not results:
        return None
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
            reader.facts(_make_blob(context, image.reference, _make_descriptor(layer), _SHORT))
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
    context: WorkerContext,
    reference: Reference,
    descriptor: Descriptor,
    limit: float = math.inf,
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


def _make_descriptor(task: LayerTask) -> Descriptor:
    return Descriptor(media_type=task.media_type, digest=task.digest, size=task.size)
