"""Blobs: downloads that resume after a broken connection, and uploads in chunks.

OCI distribution specification 1.1, "Pushing Blobs". A small blob is sent by one PUT, a larger one
by a PATCH per chunk; after a failure the registry tells how many bytes it has. A registry without
chunked uploads gets the whole blob in one PUT. Blobs of another repository are mounted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import BinaryIO

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.facts.trees.base import reason
from buildmatrix.images.documents import Descriptor
from buildmatrix.net.addresses import HttpAddress, RequestError
from buildmatrix.net.registry_mirrors import ContentVerifier, Reference
from buildmatrix.net.registry_session import Session
from buildmatrix.net.requests import HttpResponse

# Downloads


#: A connection that delivered this many bytes before it broke resets the count of failures.
MIN_PROGRESS = 1 << 20
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")


class BlobPlace(Struct, frozen=True):
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


# Uploads


#: Bytes per request: lost at most, and below the 100 MB limit of some proxies.
CHUNK = 64 << 20
_READ = 1 << 20
_RANGE = re.compile(r"(?:bytes=)?0-([0-9]{1,18})")
#: Status codes of registries without chunked uploads.
_NO_CHUNKS = frozenset({400, 404, 405, 411, 415, 501})
#: Status codes of registries that lost an upload, or a part of it.
_LOST = frozenset({404, 416})


def push_blob(
    session: Session,
    reference: Reference,
    descriptor: Descriptor,
    open: Callable[[], BinaryIO],
    mount_from: Sequence[str],
) -> bool:
    """Upload a blob; see `client.Registry.push_blob`."""
    if blob_exists(session, reference, descriptor.digest):
        return False
    upload = _Upload(session, reference, descriptor, open)
    for repository in mount_from:
        if repository != reference.repository and upload.mount(repository):
            return False
    return upload.send()


class _Upload:
    """Upload of one blob to one repository."""

    def __init__(
        self,
        session: Session,
        reference: Reference,
        descriptor: Descriptor,
        open: Callable[[], BinaryIO],
    ) -> None:
        self._session = session
        self._reference = reference
        self._descriptor = descriptor
        self._open = open
        self._wanted = f"the blob {descriptor.digest}"
        self._check = ContentVerifier(
            descriptor, f"{reference.name}: what was to be sent as {self._wanted}"
        )
        #: Address for the next bytes; None before the upload begins.
        self._address: HttpAddress | None = None
        #: Bytes that the registry has.
        self._offset = 0
        self._chunk = CHUNK

    def mount(self, repository: str) -> bool:
        """Mount the blob from another repository; return False if that failed."""

        def work() -> bool:
            with self._session.ask(
                self._reference,
                "POST",
                f"blobs/uploads/?mount={self._descriptor.digest}&from={repository}",
                self._wanted,
                # Without access to the other repository, the blob has to be sent.
                accepted=(201, 202, 400, 401, 403, 404, 405, 415),
                changes=True,
                pull_from=repository,
            ) as response:
                if response.status == 202:
                    self._record_start(response)
                return response.status == 201

        try:
            has_it = self._session.retry(work)
        except RequestError as error:
            # A token server may deny access to the other repository.
            if error.status not in (401, 403):
                raise
            return False
        # A 201 alone is only the registry's claim.
        return has_it and blob_exists(self._session, self._reference, self._descriptor.digest)

    def send(self) -> bool:
        """Send all bytes, with retries; return True once the registry has them."""
        failures, best = 0, 0
        while True:
            try:
                self._send()
                return True
            except RequestError as error:
                if self._offset - best >= MIN_PROGRESS:
                    failures, best = 0, self._offset
                failures += 1
                self._session.pause(error, failures)
                if self._resume():
                    return True

    def _send(self) -> None:
        if self._address is None:
            self._begin()
        size = self._descriptor.size
        while size - self._offset > self._chunk or 0 < self._offset < size:
            self._patch()
        self._put()

    def _begin(self) -> None:
        with self._session.ask(
            self._reference, "POST", "blobs/uploads/", self._wanted, accepted=(202,), changes=True
        ) as response:
            self._record_start(response)

    def _record_start(self, response: HttpResponse) -> None:
        self._offset = 0
        self._address = self._upload_address(response)
        least = response.headers.get("oci-chunk-min-length", "")
        if least.isascii() and least.isdigit() and len(least) < 12:
            self._chunk = max(self._chunk, int(least))

    def _patch(self) -> None:
        """Send one chunk."""
        start, end = self._offset, min(self._offset + self._chunk, self._descriptor.size)
        try:
            with self._request("PATCH", start, end, (202,)) as response:
                offset = _received_bytes(response, end)
                self._address = self._upload_address(response)
        except RequestError as error:
            if error.status in _NO_CHUNKS and self._chunk < self._descriptor.size:
                self._chunk, self._offset, self._address = self._descriptor.size, 0, None
                raise RequestError(error.message, is_temporary=True, status=error.status) from error
            raise
        if not start < offset <= end:
            raise self._error(f"says that it has {offset} bytes of it, and was sent {end}")
        self._offset = offset

    def _put(self) -> None:
        """Complete the upload, with all bytes if none were sent before."""
        with self._request("PUT", self._offset, self._descriptor.size, (201, 204)) as response:
            claimed = response.headers.get("docker-content-digest", self._descriptor.digest)
        algorithm = self._descriptor.digest.partition(":")[0]
        if claimed != self._descriptor.digest and claimed.startswith(f"{algorithm}:"):
            raise self._error("took it under another digest")

    def _request(
        self, method: str, start: int, end: int, accepted: Collection[int]
    ) -> AbstractContextManager[HttpResponse]:
        assert self._address is not None
        place = self._address
        headers = {"Content-Type": "application/octet-stream"}
        if method == "PUT":
            joint = "&" if "?" in place.target else "?"
            place = replace(place, target=f"{place.target}{joint}digest={self._descriptor.digest}")
        else:
            headers["Content-Range"] = f"{start}-{end - 1}"
        return self._session.ask(
            self._reference,
            method,
            place,
            self._wanted,
            headers=headers,
            accepted=accepted,
            # A registry may store the whole blob before it responds.
            length=self._descriptor.size,
            body=(lambda: self._iter_bytes(start, end))
            if start < end or method == "PATCH"
            else None,
            body_length=end - start,
            changes=True,
            lost=_LOST,
        )

    def _iter_bytes(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `start` to `end`, and verify all up to `end`.

        The last bytes of the blob are yielded only after all were verified.
        """
        try:
            with self._open() as file:
                position = min(start, self._check.length)
                _skip_bytes(file, position)
                while position < end:
                    data = file.read(min(_READ, end - position))
                    if not data:
                        self._check.finish()
                        raise self._error("cannot get it: it was truncated meanwhile")
                    self._check.add(data[max(0, self._check.length - position) :])
                    skipped = max(0, start - position)
                    position += len(data)
                    if position == self._descriptor.size:
                        self._check.add(file.read(1))
                        self._check.finish()
                    if rest := data[skipped:]:
                        self._session.sent.add(len(rest))
                        yield rest
        except OSError as error:
            raise self._error(f"cannot get it: reading it failed ({reason(error)})") from error

    def _resume(self) -> bool:
        """Ask for the offset of the upload; return True if the registry has the whole blob.

        The response to a completed upload may have been lost.
        """
        place, self._address, self._offset = self._address, None, 0
        if place is None:
            return False
        with suppress(RequestError):
            if blob_exists(self._session, self._reference, self._descriptor.digest):
                return True
            with self._session.ask(
                self._reference, "GET", place, self._wanted, accepted=(204,), changes=True
            ) as response:
                offset = _received_bytes(response, 0)
                if offset <= self._descriptor.size:
                    self._offset = offset
                    self._address = self._upload_address(response, place)
        return False

    def _upload_address(
        self, response: HttpResponse, otherwise: HttpAddress | None = None
    ) -> HttpAddress:
        location, base = response.headers.get("location"), response.address
        if not location:
            if otherwise is not None:
                return otherwise
            raise self._error("returned no upload location")
        try:
            place = base.join(location).bare()
        except (UndecidedError, ValueError):
            raise self._error("returned an invalid upload location") from None
        if base.scheme == "https" and place.scheme != "https":
            # The registry is behind a TLS proxy and does not know it.
            if place.host != base.host:
                raise self._error("wants it over plain HTTP, which is not allowed")
            place = replace(place, scheme=base.scheme, port=base.port)
        return place

    def _error(self, what: str) -> RequestError:
        return RequestError(f"{self._reference.name}: the registry, sent {self._wanted}, {what}")


def _received_bytes(response: HttpResponse, otherwise: int) -> int:
    """Return the bytes that the registry has; some send `0-0` for none."""
    match = _RANGE.fullmatch(response.headers.get("range", "").strip())
    if match is None:
        return otherwise
    return int(match[1]) + 1 if int(match[1]) else 0


def _skip_bytes(file: BinaryIO, count: int) -> None:
    if count and file.seekable():
        file.seek(count)
        return
    while count:
        data = file.read(min(_READ, count))
        if not data:
            return
        count -= len(data)
