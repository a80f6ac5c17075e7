"""Blobs, written: taken over from another repository, or sent in pieces that can be resumed.

OCI distribution specification 1.1, "Pushing Blobs". A blob of one piece goes by one PUT. A larger
one goes by a PATCH for each piece; after a failure the registry says how far it got. A registry
that takes no pieces gets the whole in one PUT.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import BinaryIO

from buildmatrix.errors import UndecidedError
from buildmatrix.http.addresses import HttpAddress
from buildmatrix.http.failures import RequestError
from buildmatrix.http.requests import HttpResponse
from buildmatrix.oci.documents import Descriptor
from buildmatrix.registry.blobs import PROGRESS, exists
from buildmatrix.registry.digests import Check
from buildmatrix.registry.reference import Reference
from buildmatrix.registry.session import Session
from buildmatrix.trees.base import reason

#: Bytes of one request: what is lost at most, and below the 100 MB that some proxies let pass.
PIECE = 64 << 20
_READ = 1 << 20
_RANGE = re.compile(r"(?:bytes=)?0-([0-9]{1,18})")
#: Answers of registries that take no pieces.
_NO_PIECES = frozenset({400, 404, 405, 411, 415, 501})
#: Answers of registries that lost an upload, or have other bytes of it than was thought.
_LOST = frozenset({404, 416})


def push(
    session: Session,
    reference: Reference,
    descriptor: Descriptor,
    open: Callable[[], BinaryIO],
    mount_from: Sequence[str],
) -> bool:
    """See `client.Registry.push_blob`."""
    if exists(session, reference, descriptor.digest):
        return False
    upload = _Upload(session, reference, descriptor, open)
    for repository in mount_from:
        if repository != reference.repository and upload.mount(repository):
            return False
    return upload.send()


class _Upload:
    """One blob on its way to one repository."""

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
        self._check = Check(descriptor, f"{reference.name}: what was to be sent as {self._wanted}")
        #: Where the registry takes the next bytes; None where no upload was begun.
        self._place: HttpAddress | None = None
        #: Bytes that the registry has.
        self._offset = 0
        self._piece = PIECE

    def mount(self, repository: str) -> bool:
        """Whether the registry took the blob over from another repository of its own."""

        def work() -> bool:
            with self._session.ask(
                self._reference,
                "POST",
                f"blobs/uploads/?mount={self._descriptor.digest}&from={repository}",
                self._wanted,
                # Who may not read there, or names what is not there, has to send it.
                accepted=(201, 202, 400, 401, 403, 404, 405, 415),
                changes=True,
                pull_from=repository,
            ) as answer:
                if answer.status == 202:
                    self._begun(answer)
                return answer.status == 201

        try:
            has_it = self._session.retry(work)
        except RequestError as error:
            # A token server may refuse to speak of the other repository.
            if error.status not in (401, 403):
                raise
            return False
        # Only the registry's word so far.
        return has_it and exists(self._session, self._reference, self._descriptor.digest)

    def send(self) -> bool:
        """Send all bytes, and try again what may pass; False where it got them elsewhere."""
        failures, best = 0, 0
        while True:
            try:
                self._send()
                return True
            except RequestError as error:
                if self._offset - best >= PROGRESS:
                    failures, best = 0, self._offset
                failures += 1
                self._session.pause(error, failures)
                if self._resume():
                    return True

    def _send(self) -> None:
        if self._place is None:
            self._begin()
        size = self._descriptor.size
        while size - self._offset > self._piece or 0 < self._offset < size:
            self._patch()
        self._put()

    def _begin(self) -> None:
        with self._session.ask(
            self._reference, "POST", "blobs/uploads/", self._wanted, accepted=(202,), changes=True
        ) as answer:
            self._begun(answer)

    def _begun(self, answer: HttpResponse) -> None:
        self._offset = 0
        self._place = self._located(answer)
        least = answer.headers.get("oci-chunk-min-length", "")
        if least.isascii() and least.isdigit() and len(least) < 12:
            self._piece = max(self._piece, int(least))

    def _patch(self) -> None:
        """Send one piece."""
        start, end = self._offset, min(self._offset + self._piece, self._descriptor.size)
        try:
            with self._ask("PATCH", start, end, (202,)) as answer:
                offset = _received(answer, end)
                self._place = self._located(answer)
        except RequestError as error:
            if error.status in _NO_PIECES and self._piece < self._descriptor.size:
                self._piece, self._offset, self._place = self._descriptor.size, 0, None
                raise RequestError(error.message, is_temporary=True, status=error.status) from error
            raise
        if not start < offset <= end:
            raise self._failure(f"says that it has {offset} bytes of it, and was sent {end}")
        self._offset = offset

    def _put(self) -> None:
        """Say which blob it is, with all of its bytes where none were sent before."""
        with self._ask("PUT", self._offset, self._descriptor.size, (201, 204)) as answer:
            claimed = answer.headers.get("docker-content-digest", self._descriptor.digest)
        algorithm = self._descriptor.digest.partition(":")[0]
        if claimed != self._descriptor.digest and claimed.startswith(f"{algorithm}:"):
            raise self._failure("took it under another digest")

    def _ask(
        self, method: str, start: int, end: int, accepted: Collection[int]
    ) -> AbstractContextManager[HttpResponse]:
        assert self._place is not None
        place = self._place
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
            # A registry may have to store all of it before it answers.
            length=self._descriptor.size,
            body=(lambda: self._bytes(start, end)) if start < end or method == "PATCH" else None,
            body_length=end - start,
            changes=True,
            lost=_LOST,
        )

    def _bytes(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` to `end`; those before, where nobody has summed them up yet.

        The last ones of the blob are handed out only when all were found to be the right ones.
        """
        try:
            with self._open() as file:
                position = min(start, self._check.length)
                _skip(file, position)
                while position < end:
                    data = file.read(min(_READ, end - position))
                    if not data:
                        self._check.finish()
                        raise self._failure("cannot get it: it became shorter meanwhile")
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
            raise self._failure(f"cannot get it: reading it failed ({reason(error)})") from error

    def _resume(self) -> bool:
        """Find out how far the registry got; whether it has the whole blob.

        What was lost may be the last answer, and nothing else.
        """
        place, self._place, self._offset = self._place, None, 0
        if place is None:
            return False
        with suppress(RequestError):
            if exists(self._session, self._reference, self._descriptor.digest):
                return True
            with self._session.ask(
                self._reference, "GET", place, self._wanted, accepted=(204,), changes=True
            ) as answer:
                offset = _received(answer, 0)
                if offset <= self._descriptor.size:
                    self._offset = offset
                    self._place = self._located(answer, place)
        return False

    def _located(self, answer: HttpResponse, otherwise: HttpAddress | None = None) -> HttpAddress:
        location, base = answer.headers.get("location"), answer.address
        if not location:
            if otherwise is not None:
                return otherwise
            raise self._failure("does not say where it takes it")
        try:
            place = base.join(location).bare()
        except (UndecidedError, ValueError):
            raise self._failure("does not say where it takes it") from None
        if base.scheme == "https" and place.scheme != "https":
            # Written by a registry that does not know of the proxy with TLS in front of it.
            if place.host != base.host:
                raise self._failure("wants it over plain HTTP, which is not done")
            place = replace(place, scheme=base.scheme, port=base.port)
        return place

    def _failure(self, what: str) -> RequestError:
        return RequestError(f"{self._reference.name}: the registry, sent {self._wanted}, {what}")


def _received(answer: HttpResponse, otherwise: int) -> int:
    """Bytes that the registry has; `0-0` is what some say of none."""
    match = _RANGE.fullmatch(answer.headers.get("range", "").strip())
    if match is None:
        return otherwise
    return int(match[1]) + 1 if int(match[1]) else 0


def _skip(file: BinaryIO, count: int) -> None:
    if count and file.seekable():
        file.seek(count)
        return
    while count:
        data = file.read(min(_READ, count))
        if not data:
            return
        count -= len(data)
