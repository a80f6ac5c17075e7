"""What a worker does: a reference resolved, a layer read, an image judged.

Functions that run in any process. What they learn they leave in the store. What a registry or the
bytes of an image do is part of their answer: nothing is raised for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from buildmatrix.commands.fleet.context import WorkerContext, context_of
from buildmatrix.commands.fleet.failing import Failure, failure_of, too_long
from buildmatrix.commands.fleet.judging import Question, judge, of_image, unjudged, unresolved
from buildmatrix.commands.fleet.model import (
    SMALL_LAYER,
    ImageDone,
    ImageTask,
    LayerDone,
    LayerTask,
    Subject,
    WorkerSettings,
)
from buildmatrix.errors import UndecidedError
from buildmatrix.layers.image import LayerBlob, LayerReader
from buildmatrix.oci.documents import Descriptor
from buildmatrix.phrases import size
from buildmatrix.registry.reference import Reference
from buildmatrix.reports.fleet.model import FleetResult
from buildmatrix.sources.registry import ImageDocuments, NothingToRun, image_documents

#: Bytes of a layer that is read; the largest that registries take has 52 GB (Amazon ECR).
LARGEST_LAYER = 64 << 30
#: Seconds that a layer has which is read beside other work.
_SHORT = 5.0


def resolve(settings: WorkerSettings, subject: Subject) -> ImageTask:
    """Which image a reference means now, and what is still missing for its verdict.

    One request for a tag, a HEAD where the registry answers it, and none for a digest; all else
    comes out of the store once anybody has read it. What an earlier run has judged ends here.
    """
    context = context_of(settings)
    task, _ = _resolved(context, subject)
    return replace(task, notes=context.notes())


def resolve_and_judge(settings: WorkerSettings, subject: Subject) -> ImageTask:
    """The same; where little has to be read, the image is read and judged as well.

    It stops at the first failure, and the task says what is still missing: the run then asks for
    one step after the other, and knows when to ask again.
    """
    context = context_of(settings)
    task, image = _resolved(context, subject)
    if image is not None and sum(layer.size for layer in task.unread) <= SMALL_LAYER:
        task = _read_and_judged(context, task, image)
    return replace(task, notes=context.notes())


def _resolved(context: WorkerContext, subject: Subject) -> tuple[ImageTask, ImageDocuments | None]:
    """See `resolve`, without notes; and the documents of an image that is to be judged."""
    pinned: Reference | None = None
    try:
        reference = Reference.parse(subject.reference)
        pinned = reference.at(
            subject.digest or context.asked(lambda: context.registry.digest(reference))
        )
        if stored := stored_answer(context, subject, pinned):
            return stored, None
        image = image_documents(context.documents, pinned, context.settings.platform)
        if image.reference != pinned and (
            stored := stored_answer(context, subject, pinned, image.reference)
        ):
            return stored, None
        unread = _unread(context, image)
        task = ImageTask(
            subject=subject, reference=str(image.reference), pinned=pinned.digest, unread=unread
        )
        return task, image
    except NothingToRun as error:
        failure = failure_of(error)
        if left_out := no_image(subject, pinned, error):
            return left_out, None
    except Exception as error:
        failure = failure_of(error, subject.reference)
    task = ImageTask(
        subject=subject,
        reference=str(pinned or subject.reference),
        results=unresolved(pinned, failure.text, _question(context, subject)),
        again=failure.again,
        denied=failure.denied,
        wait=failure.wait,
    )
    return task, None


def read_layer(settings: WorkerSettings, task: LayerTask) -> LayerDone:
    """Read a layer, once, so that the store has its facts."""
    context = context_of(settings)
    started = time.monotonic()
    reader = _reader(context)
    failure: Failure | None = None
    try:
        blob = _blob(context, Reference.parse(task.reference), _descriptor(task))
        if not reader.has(blob):
            context.asked(lambda: reader.facts(blob))
    except Exception as error:
        failure = failure_of(error, f"the layer {task.digest} of {task.reference} cannot be read")
    return LayerDone(
        digest=task.digest,
        bytes_read=reader.bytes_read,
        seconds=round(time.monotonic() - started, 3),
        error=failure.text if failure is not None else None,
        again=failure is not None and failure.again,
        denied=failure is not None and failure.denied,
        wait=failure.wait if failure is not None else 0.0,
        notes=context.notes(),
    )


def judge_image(settings: WorkerSettings, task: ImageTask) -> ImageDone:
    """The results of an image, one for each backend; layers that the store lost are read again."""
    context = context_of(settings)
    started = time.monotonic()
    subject = task.subject
    reader = _reader(context)
    results, failure, is_kept = task.results, None, False
    if not results:
        pinned = Reference.parse(task.reference)
        image: ImageDocuments | None = None
        try:
            image = image_documents(context.documents, pinned, settings.platform)
            if task.failed:
                raise UndecidedError("; ".join(layer.error or "" for layer in task.failed))
            results, is_kept = context.asked(partial(_judged, context, subject, image, reader))
        except Exception as error:
            failure = failure_of(error, task.reference)
            results = _without_verdict(context, subject, pinned, image, failure.text)
    return ImageDone(
        results=results,
        bytes_read=reader.bytes_read,
        seconds=round(time.monotonic() - started, 3),
        is_kept=is_kept,
        again=failure is not None and failure.again,
        denied=failure is not None and failure.denied,
        wait=failure.wait if failure is not None else 0.0,
        notes=context.notes(),
    )


def stored_answer(
    context: WorkerContext, subject: Subject, pinned: Reference, image: Reference | None = None
) -> ImageTask | None:
    """The end of an image that an earlier run has judged; `pinned` may name an index with it."""
    image = image or pinned
    results = context.results.load(result_key(context, subject, image.digest))
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


def result_key(context: WorkerContext, subject: Subject, digest: str) -> str:
    """Names everything that the results for an image with this digest depend on."""
    # A label is the image's, whose digest stands for it.
    return _question(context, subject).key(digest, {})


def no_image(subject: Subject, pinned: Reference | None, error: NothingToRun) -> ImageTask | None:
    """The end of what is no image; what really runs somewhere is one for those who run it."""
    if subject.containers:
        return None
    return ImageTask(subject=subject, reference=str(pinned), left_out=failure_of(error).text)


def _unread(context: WorkerContext, image: ImageDocuments) -> tuple[LayerTask, ...]:
    """The layers that the store does not have, each once. Raises `UndecidedError`."""
    reader = _reader(context)
    tasks: dict[str, LayerTask] = {}
    for descriptor in image.manifest.layers:
        if descriptor.size > LARGEST_LAYER:
            raise UndecidedError(
                f"{image.reference}: its layer {descriptor.digest} has {size(descriptor.size)}, "
                f"and layers of more than {size(LARGEST_LAYER)} are not read"
            )
        blob = _blob(context, image.reference, descriptor)
        if descriptor.digest not in tasks and not reader.has(blob):
            tasks[descriptor.digest] = LayerTask(
                reference=str(image.reference),
                digest=descriptor.digest,
                size=descriptor.size,
                media_type=descriptor.media_type,
            )
    return tuple(tasks.values())


def _read_and_judged(context: WorkerContext, task: ImageTask, image: ImageDocuments) -> ImageTask:
    """See `resolve_and_judge`."""
    reader = _reader(context)
    read: list[str] = []
    results: tuple[FleetResult, ...] = ()
    is_kept = False
    with suppress(Exception):
        for layer in task.unread:
            reader.facts(_blob(context, image.reference, _descriptor(layer), _SHORT))
            read.append(layer.digest)
        results, is_kept = _judged(context, task.subject, image, reader)
    return replace(
        task,
        unread=tuple(layer for layer in task.unread if layer.digest not in read),
        read=tuple(read),
        bytes_read=reader.bytes_read,
        results=results,
        is_kept=is_kept,
    )


def _judged(
    context: WorkerContext, subject: Subject, image: ImageDocuments, reader: LayerReader
) -> tuple[tuple[FleetResult, ...], bool]:
    """The results of an image, and whether they are kept. Raises what reading layers raises."""
    question = _question(context, subject)
    blobs = [_blob(context, image.reference, layer) for layer in image.manifest.layers]
    results = context.stacks.results(image, blobs, question, reader)
    is_final = bool(results)
    if not results:
        is_final = all(layer.is_final for layer in reader.layers(blobs))
        inventory = reader.inventory(image.configuration, blobs, None)
        judged = judge(inventory, image.configuration.labels, question)
        results = tuple(of_image(item.result, image, question) for item in judged)
    if is_final:
        context.results.save(result_key(context, subject, image.reference.digest), results)
    return results, is_final


def _without_verdict(
    context: WorkerContext,
    subject: Subject,
    pinned: Reference,
    image: ImageDocuments | None,
    why: str,
) -> tuple[FleetResult, ...]:
    question = _question(context, subject)
    return unresolved(pinned, why, question) if image is None else unjudged(image, why, question)


def _question(context: WorkerContext, subject: Subject) -> Question:
    return Question(subject, context.settings, context.catalogue)


def _reader(context: WorkerContext) -> LayerReader:
    return LayerReader(context.cache)


def _blob(
    context: WorkerContext,
    reference: Reference,
    descriptor: Descriptor,
    limit: float = math.inf,
) -> LayerBlob:
    """A layer, which the registry is asked for that the context has when it is opened.

    `limit`: seconds that its bytes may take, within the time limit of the settings.
    """
    seconds = min(limit, context.settings.time_limit)
    return LayerBlob(
        descriptor.digest,
        descriptor.size,
        lambda: _in_time(context, reference, descriptor, seconds),
    )


@contextmanager
def _in_time(
    context: WorkerContext, reference: Reference, descriptor: Descriptor, limit: float
) -> Iterator[Iterator[bytes]]:
    """The bytes of a layer; raises `UndecidedError` once it takes too long, however few come."""
    end = time.monotonic() + limit

    def passed(chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if time.monotonic() > end:
                what = f"reading the layer {descriptor.digest} of {reference.name}"
                raise UndecidedError(too_long(what, limit))
            yield chunk

    with context.registry.blob(reference, descriptor) as chunks:
        yield passed(chunks)


def _descriptor(task: LayerTask) -> Descriptor:
    return Descriptor(media_type=task.media_type, digest=task.digest, size=task.size)
