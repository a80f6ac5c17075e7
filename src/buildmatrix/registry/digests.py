"""Bytes held against the digest and the length that somebody said they have."""

from __future__ import annotations

import hashlib
import re

from buildmatrix.http.failures import RequestError
from buildmatrix.oci.documents import Descriptor

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


class Check:
    """Sums up the bytes of one blob or document as they pass."""

    def __init__(self, descriptor: Descriptor, subject: str) -> None:
        """`subject`: begins the sentence of an error."""
        self._descriptor = descriptor
        self._subject = subject
        self._sum = hashlib.new(descriptor.digest.partition(":")[0])
        self.length = 0

    def add(self, data: bytes) -> None:
        """The next bytes. Raises RequestError where they are too many."""
        self.length += len(data)
        if self.length > self._descriptor.size:
            raise RequestError(
                f"{self._subject} has more than the {self._descriptor.size} bytes that its "
                "descriptor says"
            )
        self._sum.update(data)

    def finish(self) -> None:
        """After the last byte. Raises RequestError where length or digest is not that."""
        size = self._descriptor.size
        if self.length != size:
            raise RequestError(
                f"{self._subject} has {self.length} bytes where its descriptor says {size}"
            )
        digest = f"{self._sum.name}:{self._sum.hexdigest()}"
        if digest != self._descriptor.digest:
            raise RequestError(
                f"{self._subject} is not what its digest says: its bytes have {digest}"
            )


def digest_of(data: bytes, algorithm: str = "sha256") -> str:
    """The digest of a document."""
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


def is_digest(text: str) -> bool:
    """Whether a text names content as registries do."""
    return _DIGEST.fullmatch(text) is not None
