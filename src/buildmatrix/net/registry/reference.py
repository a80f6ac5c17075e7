"""Names of images, parsed as `distribution/reference` does, and digests of content.

Grammar: https://github.com/distribution/reference/blob/main/reference.go. A name without a host is
on Docker Hub, and one without a slash in its `library/`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.text import printable
from buildmatrix.images.oci.documents import Descriptor
from buildmatrix.net.http.failures import RequestError

DOCKER_HUB = "docker.io"
#: Docker's default if a name has neither tag nor digest.
DEFAULT_TAG = "latest"
_LONGEST_REPOSITORY = 255
_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]{0,61}[a-zA-Z0-9])"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
#: Docker reads this as the ID of a local image.
_IDENTIFIER = re.compile(r"[0-9a-f]{64}")


def split_host(text: str) -> tuple[str, str]:
    """Split a name into host and path; the default host is Docker Hub."""
    host, slash, path = text.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost" or host.lower() != host):
        return DOCKER_HUB, text
    return DOCKER_HUB if host == f"index.{DOCKER_HUB}" else host, path


def is_host(text: str) -> bool:
    """Return True if the text can be a registry's host, with an optional port."""
    return _HOST.fullmatch(text) is not None


def is_repository(text: str) -> bool:
    """Return True if the text can be the name of a repository."""
    return len(text) <= _LONGEST_REPOSITORY and _REPOSITORY.fullmatch(text) is not None


def is_tag(text: str) -> bool:
    """Return True if the text can be a tag."""
    return _TAG.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Reference:
    """A repository in a registry, with a tag or digest."""

    #: With its port, if any; `docker.io` for Docker Hub.
    host: str
    #: `library/debian`
    repository: str
    tag: str = ""
    #: Overrides the tag.
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Parse `[HOST/]NAME[:TAG][@DIGEST]`. Raises UndecidedError, without any password."""
        rest, _, digest = text.partition("@")
        if "/" in digest or (digest and not _DIGEST.fullmatch(digest)):
            # User name and password in a URL end with `@`, too.
            raise UndecidedError(
                "the text after @ in an image name must be a digest (sha256:...); to send a user "
                "name and password, use `docker login`"
            )
        host, path = split_host(rest)
        repository, _, tag = path.partition(":")
        if host == DOCKER_HUB:
            repository = repository if "/" in repository else f"library/{repository}"
        good = (
            _HOST.fullmatch(host)
            and is_repository(repository)
            and (is_tag(tag) or ":" not in path)
            and not _IDENTIFIER.fullmatch(rest)
            and (digest or "@" not in text)
        )
        if not good:
            raise UndecidedError(
                f"{printable(text)[:300]!r} is not the name of an image in a registry; write "
                "HOST/NAME[:TAG][@DIGEST] in lower case"
            )
        return cls(host, repository, tag, digest)

    @property
    def name(self) -> str:
        """Host and repository: `docker.io/library/debian`; the host alone for a whole registry."""
        return f"{self.host}/{self.repository}" if self.repository else self.host

    @property
    def version(self) -> str:
        """The digest, or else the tag, or else `latest`."""
        return self.digest or self.tag or DEFAULT_TAG

    def at(self, digest: str) -> Reference:
        """Return the reference pinned to a digest."""
        return replace(self, digest=digest)

    def with_tag(self, tag: str) -> Reference:
        """Return the reference with another tag. Raises UndecidedError for an invalid one."""
        if not is_tag(tag):
            raise UndecidedError(f"{printable(tag)[:200]!r} is not a valid image tag")
        return replace(self, tag=tag, digest="")

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}" + (f"@{self.digest}" if self.digest else "")


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
