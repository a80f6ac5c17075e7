"""The door to image registries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO

from buildmatrix.http.patience import Patience
from buildmatrix.oci.documents import Descriptor
from buildmatrix.registry.reference import Reference
from buildmatrix.trees.base import Closing


@dataclass(frozen=True, slots=True)
class ManifestBytes:
    """A manifest or an index as a registry gave it; its bytes have the digest."""

    data: bytes
    media_type: str
    digest: str

    @property
    def descriptor(self) -> Descriptor:
        """What an index or a referrer says of it."""
        return Descriptor(media_type=self.media_type, digest=self.digest, size=len(self.data))


class Registry(Closing):
    """Asks registries, for all threads and all hosts at once; connections and tokens are kept.

    Credentials, proxies and certificates are those of this machine (docs/registries.md). Opens
    nothing before the first request. Every method raises UndecidedError, in one sentence that names
    registry and repository, where a registry does not give or take what it should; what may pass is
    tried again first.

    Args:
        plain_http: hosts (`HOST` or `HOST:PORT`) that are spoken to without TLS, besides loopback.
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
        raise NotImplementedError

    def close(self) -> None:
        """Close all connections; what waits for a registry gives up."""
        raise NotImplementedError

    # Reading

    def resolve(self, reference: Reference) -> Descriptor:
        """What `reference` means now; go on with `reference.at(descriptor.digest)`.

        A tag may mean something else a moment later. The registry is asked each time, and for the
        document itself, so that the digest is that of bytes it really has.
        """
        raise NotImplementedError

    def manifest(self, reference: Reference) -> ManifestBytes:
        """A manifest or an index; of the digest, where `reference` has one. At most 8 MiB.

        What was asked for by digest before comes out of memory.
        """
        raise NotImplementedError

    def blob(
        self, reference: Reference, descriptor: Descriptor
    ) -> AbstractContextManager[Iterator[bytes]]:
        """The bytes of a blob as they come; a cut is resumed where it was.

        The iterator ends only after length and digest of all bytes were found right, and raises
        otherwise: whoever leaves it earlier has bytes that nobody checked.
        """
        raise NotImplementedError

    def blob_range(
        self, reference: Reference, descriptor: Descriptor, offset: int, length: int
    ) -> bytes:
        """`length` bytes from `offset` on; nothing but their number can be checked.

        Raises UndecidedError where the registry has no ranges, too.
        """
        raise NotImplementedError

    def has_blob(self, reference: Reference, digest: str) -> bool:
        """Whether the repository has a blob."""
        raise NotImplementedError

    def referrers(
        self, reference: Reference, digest: str, artifact_type: str = ""
    ) -> list[Descriptor]:
        """The manifests whose subject is `digest`, of one type or of all.

        From the referrers API, or where a registry has none from the tag that stands in for it.
        """
        raise NotImplementedError

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
        raise NotImplementedError

    def push_manifest(self, reference: Reference, data: bytes, media_type: str) -> Descriptor:
        """Write a manifest or an index, by the digest of `reference` or else its tag.

        Without either, by its own digest. Call it after all blobs are there.
        """
        raise NotImplementedError

    def push_referrer(self, reference: Reference, data: bytes) -> Descriptor:
        """Write a manifest that has a subject, so that `referrers` finds it.

        Where the registry has no referrers API, the tag that stands in for it is updated.
        """
        raise NotImplementedError
