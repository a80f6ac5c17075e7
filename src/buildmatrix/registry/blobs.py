"""Blobs, read as they come: in one go, on from where a connection broke, or in ranges."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

from buildmatrix.errors import UndecidedError
from buildmatrix.http.failures import RequestError
from buildmatrix.http.requests import HttpResponse
from buildmatrix.oci.documents import Descriptor
from buildmatrix.registry.digests import Check
from buildmatrix.registry.reference import Reference
from buildmatrix.registry.session import Session

#: A connection that brought so many bytes before it broke does not count as a failure in a row.
PROGRESS = 1 << 20
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """Somebody who may have a blob."""

    session: Session
    reference: Reference
    #: Told why a mirror was left for the next place; None for the registry itself.
    leave: Callable[[RequestError], None] | None = None
    #: Told that it begins to send.
    serves: Callable[[], None] = lambda: None


def stream(
    places: Sequence[BlobPlace], reference: Reference, descriptor: Descriptor
) -> Generator[bytes, None, None]:
    """See `client.Registry.blob`. The registry of `reference` is the last of the places.

    What one began another one ends: the digest is that of all bytes.
    """
    check = Check(descriptor, f"{reference.name}: the blob {descriptor.digest}")
    failures, last = 0, 0
    left = list(places)
    while True:
        place = left[0]
        try:
            for chunk in _from(place.session, place.reference, descriptor, check.length):
                if place.leave is not None and check.length == last:
                    place.serves()
                check.add(chunk)
                yield chunk
            break
        except RequestError as error:
            if place.leave is not None:
                place.leave(error)
                left.pop(0)
                last = check.length
                continue
            session = place.session
            if check.length - last >= PROGRESS:
                failures, last = 0, check.length
            failures += 1
            session.pause(error, failures)
    try:
        check.finish()
    except UndecidedError as error:
        if place.leave is not None:
            place.leave(RequestError(error.message))
        raise


def _from(
    session: Session, reference: Reference, descriptor: Descriptor, start: int
) -> Iterator[bytes]:
    """The bytes from `start` on, by one request. Raises RequestError, also for a body that ends."""
    wanted = f"the blob {descriptor.digest}"
    with session.ask(
        reference,
        "GET",
        f"blobs/{descriptor.digest}",
        wanted,
        headers={"Range": f"bytes={start}-"} if start else {},
        accepted=(200, 206) if start else (200,),
        length=descriptor.size - start,
    ) as answer:
        if answer.status == 206:
            _check_range(reference, wanted, answer, start, descriptor.size - 1, descriptor.size)
        elif answer.length() not in (None, descriptor.size):
            raise RequestError(
                f"{reference.name}: {wanted} has {answer.length()} bytes where its descriptor says "
                f"{descriptor.size}"
            )
        position = start if answer.status == 206 else 0
        for chunk in answer.body:
            fresh = chunk[max(0, start - position) :]
            position += len(chunk)
            if fresh:
                yield fresh
        if position < descriptor.size:
            raise RequestError(
                f"{reference.name}: {wanted} was cut after {position} of {descriptor.size} bytes",
                is_temporary=True,
            )


def _check_range(
    reference: Reference, wanted: str, answer: HttpResponse, first: int, last: int, size: int
) -> None:
    """A server may answer a range with another one (RFC 9110, 15.3.7)."""
    content_range = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
    wrong = content_range is None or (int(content_range[1]), int(content_range[2])) != (first, last)
    if content_range is None or wrong or content_range[3] not in ("*", str(size)):
        raise RequestError(
            f"{reference.name}: bytes {first} to {last} of {size} of {wanted} were asked for, and "
            "the registry answers with others"
        )


def exists(session: Session, reference: Reference, digest: str) -> bool:
    """See `client.Registry.has_blob`."""

    def work() -> bool:
        with session.ask(
            reference, "HEAD", f"blobs/{digest}", f"the blob {digest}", accepted=(200, 404)
        ) as answer:
            return answer.status == 200

    return session.retry(work)
