"""The door to image registries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import BinaryIO, TypeVar

from buildmatrix.errors import UndecidedError
from buildmatrix.http.failures import RequestError
from buildmatrix.http.patience import Patience
from buildmatrix.oci.documents import Descriptor
from buildmatrix.registry.blobs import BlobPlace, exists, stream
from buildmatrix.registry.catalog import Lists
from buildmatrix.registry.manifests import ManifestBytes, Manifests
from buildmatrix.registry.mirrors import Mirrors
from buildmatrix.registry.reference import Reference
from buildmatrix.registry.referrers import Referrers
from buildmatrix.registry.session import Session
from buildmatrix.registry.uploads import push
from buildmatrix.trees.base import Closing

_Answer = TypeVar("_Answer")


class Registry(Closing):
    """Asks registries, for all threads and all hosts at once; connections and tokens are kept.

    Credentials, proxies and certificates are those of this machine (docs/registries.md). Opens
    nothing before the first request. Every method raises UndecidedError, in one sentence that names
    registry and repository, where a registry does not give or take what it should; what may pass is
    tried again first.

    Args:
        plain_http: hosts (`HOST` or `HOST:PORT`) that are spoken to without TLS, besides loopback
            and those in BUILDMATRIX_PLAIN_HTTP.
        offline: nothing is asked for.
        patience: how long a registry is waited for.
        mirrors: where else images are read from; None for nowhere. What is written, and the lists
            of what refers to an image, are the registry's own.
        note: told once which mirror an image came from, and which was passed over.
    """

    def __init__(
        self,
        *,
        plain_http: Sequence[str] = (),
        offline: bool = False,
        patience: Patience | None = None,
        mirrors: Mirrors | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        plain = (*plain_http, *os.environ.get("BUILDMATRIX_PLAIN_HTTP", "").split())
        self._note = note
        self._noted: set[str] = set()
        #: Mirrors that were out of order.
        self._broken: set[str] = set()
        self._session = Session(patience or Patience(), plain, os.environ, offline=offline)
        self._manifests = Manifests(self._session)
        self._mirrors = mirrors
        self._mirror_session, self._mirrored = self._session, self._manifests
        if mirrors is not None:
            mirrors.plain_http, mirrors.note = plain, note
            self._mirror_session = Session(
                # The registry itself is there when a mirror is not.
                replace(patience or Patience(), tries=1, connect=3.0),
                plain,
                os.environ,
                offline=offline,
                authorities=mirrors.authorities,
            )
            self._mirrored = Manifests(self._mirror_session)
        self._referrers = Referrers(self._session, self._manifests)
        self._lists = Lists(self._session)

    @property
    def _sessions(self) -> set[Session]:
        return {self._session, self._mirror_session}

    def close(self) -> None:
        """Close all connections; what waits for a registry gives up."""
        for session in self._sessions:
            session.close()

    @property
    def bytes_read(self) -> int:
        """Bytes that came over the network so far, documents included."""
        return sum(session.received.bytes for session in self._sessions)

    @property
    def bytes_sent(self) -> int:
        """Bytes of blobs that were sent so far, repetitions included."""
        return self._session.sent.bytes

    @property
    def requests(self) -> int:
        """Requests so far, those for tokens included."""
        return sum(session.received.requests for session in self._sessions)

    # Reading

    def resolve(self, reference: Reference) -> Descriptor:
        """What `reference` means now; go on with `reference.at(descriptor.digest)`.

        A tag may mean something else a moment later. The registry is asked each time, and for the
        document itself, so that the digest is that of bytes it really has.
        """
        return self._read(
            reference,
            self._mirrored.ask,
            self._manifests.ask,
        ).descriptor

    def digest(self, reference: Reference, known: str = "") -> str:
        """The digest of what `reference` means now, as the registry says it.

        Cheaper than `resolve`: no document is sent. What is read by this digest later is checked.
        `known`: what it meant before, if that is known; many registries have less work then.
        """
        if reference.digest:
            return reference.digest
        claimed = self._read(
            reference,
            lambda place: self._mirrored.digest(place, known),
            lambda place: self._manifests.digest(place, known),
        )
        return claimed or self.resolve(reference).digest

    def manifest(self, reference: Reference) -> ManifestBytes:
        """A manifest or an index; of the digest, where `reference` has one. At most 8 MiB.

        What was asked for by digest before comes out of memory.
        """
        return self._read(
            reference,
            self._mirrored.read,
            self._manifests.read,
        )

    @contextmanager
    def blob(self, reference: Reference, descriptor: Descriptor) -> Iterator[Iterator[bytes]]:
        """The bytes of a blob as they come; a cut is resumed where it was.

        The iterator ends only after length and digest of all bytes were found right, and raises
        otherwise: whoever leaves it earlier has bytes that nobody checked.
        """
        *mirrors, origin = self._places(reference.at(descriptor.digest))
        places = [
            BlobPlace(
                self._mirror_session,
                place,
                partial(self._leave, place),
                partial(self._served, reference, place),
            )
            for place in mirrors
        ]
        chunks = stream([*places, BlobPlace(self._session, origin)], origin, descriptor)
        try:
            yield chunks
        finally:
            chunks.close()

    def has_blob(self, reference: Reference, digest: str) -> bool:
        """Whether the repository has a blob."""
        return exists(self._session, reference, digest)

    def referrers(
        self, reference: Reference, digest: str, artifact_type: str = ""
    ) -> list[Descriptor]:
        """The manifests whose subject is `digest`, of one type or of all.

        From the referrers API, or where a registry has none from the tag that stands in for it.
        """
        return self._referrers.read(reference, digest, artifact_type)

    def repositories(self, host: str) -> Iterator[str]:
        """The names of all repositories of a registry, as it sends them.

        Most public registries do not say it. Mirrors are not asked.
        """
        return self._lists.repositories(host)

    def tags(self, reference: Reference) -> Iterator[str]:
        """The tags of a repository, as its registry sends them. Mirrors are not asked."""
        return self._lists.tags(reference)

    def _places(self, reference: Reference) -> tuple[Reference, ...]:
        """Mirrors that are not out of order, and the registry itself, the last."""
        if self._mirrors is None:
            return (reference,)
        places = self._mirrors.places(reference)
        return (*(item for item in places.mirrors if item.host not in self._broken), places.origin)

    def _read(
        self,
        reference: Reference,
        of_mirror: Callable[[Reference], _Answer],
        of_registry: Callable[[Reference], _Answer],
    ) -> _Answer:
        *mirrors, origin = self._places(reference)
        for place in mirrors:
            try:
                answer = of_mirror(place)
            except UndecidedError as error:
                self._leave(place, error)
                continue
            self._served(reference, place)
            return answer
        return of_registry(origin)

    def _served(self, reference: Reference, place: Reference) -> None:
        self._tell(f"{reference.name}: read from the mirror {place.host}")

    def _leave(self, place: Reference, error: UndecidedError) -> None:
        """Go on with the next; one that answers may have the next image."""
        status = error.status if isinstance(error, RequestError) else None
        if status is None or status >= 500:
            self._broken.add(place.host)
        self._tell(f"the mirror {place.host} is passed over: {error.message}")

    def _tell(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)

    # Writing

    def push_blob(
        self,
        reference: Reference,
        descriptor: Descriptor,
        open: Callable[[], BinaryIO],
        mount_from: Sequence[str] = (),
    ) -> bool:
        """Have a blob in the repository; says whether its bytes were sent.

        Sends nothing where the repository has it, or the registry takes it from one of the
        repositories `mount_from` of the same host. Large blobs go in chunks, and on from where a
        failure left them.

        `open` gives the bytes from the start, again for each try; better seekable. They are checked
        on their way: a blob of another digest is never completed.
        """
        return push(self._session, reference, descriptor, open, mount_from)

    def push_manifest(self, reference: Reference, data: bytes, media_type: str) -> Descriptor:
        """Write a manifest or an index, by the digest of `reference` or else its tag.

        Without either, by its own digest. Call it after all blobs are there.
        """
        return self._manifests.write(reference, data, media_type)[0]

    def push_referrer(self, reference: Reference, data: bytes) -> Descriptor:
        """Write a manifest that has a subject, so that `referrers` finds it.

        Where the registry has no referrers API, the tag that stands in for it is updated.
        """
        return self._referrers.push(reference, data)
