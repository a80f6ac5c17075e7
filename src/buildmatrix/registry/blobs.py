"""Downloads of blobs, resumed after a broken connection."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

from buildmatrix.errors import UndecidedError
from buildmatrix.http.failures import RequestError
from buildmatrix.http.requests import HttpResponse
from buildmatrix.oci.documents import Descriptor
from buildmatrix.registry.digests import ContentVerifier
from buildmatrix.registry.reference import Reference
from buildmatrix.registry.session import Session

#: A connection that delivered this many bytes before it broke resets the count of failures.
MIN_PROGRESS = 1 << 20
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """A registry or mirror that may have a blob."""

    session: Session
    reference: Reference
    #: Called when a mirror failed and the next place follows; None for the registry itself.
    on_failure: Callable[[RequestError], None] | None = None
    #: Called when it starts to send.
    on_start: Callable[[], None] = lambda: None


def stream_blob(
    places: Sequence[BlobPlace], reference: Reference, descriptor: Descriptor
) -> Generator[bytes, None, None]:
    """Yield a blob's bytes; see `client.Registry.blob`. The last place is the registry itself.

    A place continues where the previous one broke off: the digest covers all bytes.
    """
    check = ContentVerifier(descriptor, f"{reference.name}: the blob {descriptor.digest}")
    failures, last = 0, 0
    left = list(places)
    while True:
        place = left[0]
        try:
            for chunk in _stream_from(place.session, place.reference, descriptor, check.length):
                if place.on_failure is not None and check.length == last:
                    place.on_start()
                check.add(chunk)
                yield chunk
            break
        except RequestError as error:
            if place.on_failure is not None:
                place.on_failure(error)
                left.pop(0)
                last = check.length
                continue
            session = place.session
            if check.length - last >= MIN_PROGRESS:
                failures, last = 0, check.length
            failures += 1
            session.pause(error, failures)
    try:
        check.finish()
    except UndecidedError as error:
        if place.on_failure is not None:
            place.on_failure(RequestError(error.message))
        raise


def _stream_from(
    session: Session, reference: Reference, descriptor: Descriptor, start: int
) -> Iterator[bytes]:
    """Yield the bytes from `start` on, by one request. Raises RequestError, also if cut short."""
    wanted = f"the blob {descriptor.digest}"
    with session.ask(
        reference,
        "GET",
        f"blobs/{descriptor.digest}",
        wanted,
        headers={"Range": f"bytes={start}-"} if start else {},
        accepted=(200, 206) if start else (200,),
        length=descriptor.size - start,
    ) as response:
        if response.status == 206:
            _check_range(reference, wanted, response, start, descriptor.size - 1, descriptor.size)
        elif response.length() not in (None, descriptor.size):
            raise RequestError(
                f"{reference.name}: {wanted} has {response.length()} bytes, and its descriptor "
                f"states {descriptor.size}"
            )
        position = start if response.status == 206 else 0
        for chunk in response.body:
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
    reference: Reference, wanted: str, response: HttpResponse, first: int, last: int, size: int
) -> None:
    """Raise RequestError if the server returned another range (RFC 9110, 15.3.7)."""
    content_range = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
    wrong = content_range is None or (int(content_range[1]), int(content_range[2])) != (first, last)
    if content_range is None or wrong or content_range[3] not in ("*", str(size)):
        raise RequestError(
            f"{reference.name}: bytes {first} to {last} of {size} of {wanted} were requested, but "
            "the registry returned others"
        )


def blob_exists(session: Session, reference: Reference, digest: str) -> bool:
    """See `client.Registry.has_blob`."""

    def work() -> bool:
        with session.ask(
            reference, "HEAD", f"blobs/{digest}", f"the blob {digest}", accepted=(200, 404)
        ) as response:
            return response.status == 200

    return session.retry(work)
