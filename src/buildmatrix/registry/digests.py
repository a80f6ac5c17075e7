"""Verification of content by digest and length."""

from __future__ import annotations

import hashlib
import re

from buildmatrix.http.failures import RequestError
from buildmatrix.oci.documents import Descriptor

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


class ContentVerifier:
    """Incremental verification of one blob or document."""

    def __init__(self, descriptor: Descriptor, subject: str) -> None:
        """Start the verification; `subject` starts the sentence of an error."""
        self._descriptor = descriptor
        self._subject = subject
        self._sum = hashlib.new(descriptor.digest.partition(":")[0])
        self.length = 0

    def add(self, data: bytes) -> None:
        """Add the next bytes. Raises RequestError if there are too many."""
        self.length += len(data)
        if self.length > self._descriptor.size:
            raise RequestError(
                f"{self._subject} has more than the {self._descriptor.size} bytes that its "
                "descriptor says"
            )
        self._sum.update(data)

    def finish(self) -> None:
        """Raise RequestError if the length or digest differs."""
        size = self._descriptor.size
        if self.length != size:
            raise RequestError(
                f"{self._subject} has {self.length} bytes, and its descriptor states {size}"
            )
        digest = f"{self._sum.name}:{self._sum.hexdigest()}"
        if digest != self._descriptor.digest:
            raise RequestError(
                f"{self._subject} is not what its digest says: its bytes have {digest}"
            )


def digest_of(data: bytes, algorithm: str = "sha256") -> str:
    """Return the digest of a document."""
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


def is_digest(text: str) -> bool:
    """Return True if the text is a sha256 or sha512 digest."""
    return _DIGEST.fullmatch(text) is not None
