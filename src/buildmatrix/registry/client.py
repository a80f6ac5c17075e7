"""The door to image registries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from buildmatrix.http.patience import Patience
from buildmatrix.oci.documents import Descriptor
from buildmatrix.registry.blobs import exists, read_range, stream
from buildmatrix.registry.manifests import ManifestBytes, Manifests
from buildmatrix.registry.reference import Reference
from buildmatrix.registry.referrers import Referrers
from buildmatrix.registry.session import Session
from buildmatrix.registry.uploads import push
from buildmatrix.trees.base import Closing


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
    """

    def __init__(
        self,
        *,
        plain_http: Sequence[str] = (),
        offline: bool = False,
        patience: Patience | None = None,
    ) -> None:
        plain = (*plain_http, *os.environ.get("BUILDMATRIX_PLAIN_HTTP", "").split())
        self._session = Session(patience or Patience(), plain, os.environ, offline=offline)
        self._manifests = Manifests(self._session)
        self._referrers = Referrers(self._session, self._manifests)

    def close(self) -> None:
        """Close all connections; what waits for a registry gives up."""
        self._session.close()

    @property
    def bytes_read(self) -> int:
        """Bytes that came over the network so far, documents included."""
        return self._session.received.bytes

    @property
    def bytes_sent(self) -> int:
        """Bytes of blobs that were sent so far, repetitions included."""
        return self._session.sent.bytes

    @property
    def requests(self) -> int:
        """Requests so far, those for tokens included."""
        return self._session.received.requests

    # Reading

    def resolve(self, reference: Reference) -> Descriptor:
        """What `reference` means now; go on with `reference.at(descriptor.digest)`.

        A tag may mean something else a moment later. The registry is asked each time, and for the
        document itself, so that the digest is that of bytes it really has.
        """
        return self._manifests.ask(reference).descriptor

    def manifest(self, reference: Reference) -> ManifestBytes:
        """A manifest or an index; of the digest, where `reference` has one. At most 8 MiB.

        What was asked for by digest before comes out of memory.
        """
        return self._manifests.read(reference)

    @contextmanager
    def blob(self, reference: Reference, descriptor: Descriptor) -> Iterator[Iterator[bytes]]:
        """The bytes of a blob as they come; a cut is resumed where it was.

        The iterator ends only after length and digest of all bytes were found right, and raises
        otherwise: whoever leaves it earlier has bytes that nobody checked.
        """
        chunks = stream(self._session, reference, descriptor)
        try:
            yield chunks
        finally:
            chunks.close()

    def blob_range(
        self, reference: Reference, descriptor: Descriptor, offset: int, length: int
    ) -> bytes:
        """`length` bytes from `offset` on; nothing but their number can be checked.

        Raises UndecidedError where the registry has no ranges, too.
        """
        return read_range(self._session, reference, descriptor, offset, length)

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
