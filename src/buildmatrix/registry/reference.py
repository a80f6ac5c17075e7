"""Names of images in registries, read as `distribution/reference` reads them.

Grammar: https://github.com/distribution/reference/blob/main/reference.go. What has no host is on
Docker Hub, and what has no slash is in its `library/`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from buildmatrix.errors import UndecidedError
from buildmatrix.text import printable

DOCKER_HUB = "docker.io"
#: What Docker takes where no tag and no digest is given.
DEFAULT_TAG = "latest"
_LONGEST_REPOSITORY = 255
_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]{0,61}[a-zA-Z0-9])"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
#: What Docker takes for the identifier of a local image.
_IDENTIFIER = re.compile(r"[0-9a-f]{64}")


def split_host(text: str) -> tuple[str, str]:
    """The host of a name, and what is behind it; what has no host is on Docker Hub."""
    host, slash, path = text.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost" or host.lower() != host):
        return DOCKER_HUB, text
    return DOCKER_HUB if host == f"index.{DOCKER_HUB}" else host, path


def is_host(text: str) -> bool:
    """Whether it can be the host of a registry, with its port."""
    return _HOST.fullmatch(text) is not None


def is_repository(text: str) -> bool:
    """Whether it can be the name of a repository."""
    return len(text) <= _LONGEST_REPOSITORY and _REPOSITORY.fullmatch(text) is not None


def is_tag(text: str) -> bool:
    """Whether it can be a tag."""
    return _TAG.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Reference:
    """A repository in a registry, and what is meant in it."""

    #: With its port where it has one; `docker.io` for Docker Hub.
    host: str
    #: `library/debian`
    repository: str
    tag: str = ""
    #: Counts alone where there is a tag as well.
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Reference:
        """`[HOST/]NAME[:TAG][@DIGEST]`. Raises UndecidedError, which never shows a password."""
        rest, _, digest = text.partition("@")
        if "/" in digest or (digest and not _DIGEST.fullmatch(digest)):
            # A user name and a password end in an `@`, too.
            raise UndecidedError(
                "what follows the @ in the name of an image is no digest (sha256:...); registries "
                "take no user name in it: log in with `docker login`"
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
                f"{printable(text)[:300]!r} is no name of an image in a registry; write "
                "HOST/NAME[:TAG][@DIGEST] in lower case"
            )
        return cls(host, repository, tag, digest)

    @property
    def name(self) -> str:
        """Host and repository: `docker.io/library/debian`; of a whole registry, its host."""
        return f"{self.host}/{self.repository}" if self.repository else self.host

    @property
    def version(self) -> str:
        """What a registry is asked for: the digest, or else the tag, or else `latest`."""
        return self.digest or self.tag or DEFAULT_TAG

    def at(self, digest: str) -> Reference:
        """The same name, pinned."""
        return replace(self, digest=digest)

    def tagged(self, tag: str) -> Reference:
        """Another tag of the same repository. Raises UndecidedError for what is no tag."""
        if not is_tag(tag):
            raise UndecidedError(f"{printable(tag)[:200]!r} is no tag of an image")
        return replace(self, tag=tag, digest="")

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}" + (f"@{self.digest}" if self.digest else "")
