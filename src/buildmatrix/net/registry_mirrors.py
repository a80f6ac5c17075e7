"""Registry mirrors, from the settings of this machine's engines.

The first settings with the registry win: podman's and skopeo's (containers-registries.conf(5),
version 2, with its drop-in folders), containerd's (`hosts.toml`,
https://github.com/containerd/containerd/blob/main/docs/hosts.md), and Docker's `registry-mirrors`,
which apply to Docker Hub. They are read once, with the first image of a registry.

Settings that weaken TLS (`insecure`, `skip_verify`) are ignored, and a mirror over plain HTTP is
skipped unless it is on this machine or named in BUILDMATRIX_PLAIN_HTTP. Names without a registry
are Docker Hub's: `unqualified-search-registries` and aliases are ambiguous, and ignored.

Grammar: https://github.com/distribution/reference/blob/main/reference.go. A name without a host is
on Docker Hub, and one without a slash in its `library/`.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from buildmatrix.base import toml
from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError, UndecidedError
from buildmatrix.base.strict import parse_json
from buildmatrix.base.text import printable
from buildmatrix.facts.files import read_at_most
from buildmatrix.images.documents import Descriptor
from buildmatrix.net.addresses import RequestError, parse

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


class Reference(Struct, frozen=True):
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


#: Bytes of a settings file.
_MAX_FILE = 1 << 20
#: Names of Docker Hub in settings.
_HUB = frozenset({DOCKER_HUB, "registry-1.docker.io", "index.docker.io"})
#: Root of the API; a path below it is prepended to repository names.
_ROOT = "/v2"


class _Mirror(Struct, frozen=True):
    """A mirror: a host, and a prefix of its repositories."""

    #: `mirror.example.com/hub`
    location: str
    serves_tags: bool = True
    serves_digests: bool = True


class _Rule(Struct, frozen=True):
    """Settings for all names with a prefix."""

    #: `docker.io/library`; `*.example.com` matches all subdomains.
    prefix: str
    #: Replacement of the prefix at the registry itself.
    location: str
    mirrors: tuple[_Mirror, ...] = ()
    #: File that blocks the prefix; empty for none.
    blocked_by: str = ""

    def strip_prefix(self, name: str) -> str | None:
        """Return the part of `HOST/NAME` after the prefix; None if the rule does not apply."""
        if self.prefix.startswith("*."):
            host, slash, path = name.partition("/")
            return slash + path if host.endswith(self.prefix[1:]) else None
        if name == self.prefix or name.startswith(f"{self.prefix}/"):
            return name[len(self.prefix) :]
        return None


class Mirrors(Struct):
    """Mirrors of this machine, for all threads.

    Args:
        environment: HOME, XDG_CONFIG_HOME and CONTAINERS_REGISTRIES_CONF are read.
        note: called with each skipped mirror.
        root: parent of `/etc`.
    """

    environment: Mapping[str, str]
    root: Path = Path("/")
    note: Callable[[str], None] = lambda _: None
    #: Certificate authorities by host, from `hosts.toml`; filled while mirrors are looked up.
    authorities: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    plain_http: Collection[str] = ()
    _rules: list[_Rule] | None = None
    _hosts: dict[str, _Rule | None] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def locate(self, reference: Reference) -> tuple[Reference, ...]:
        """Return the locations of an image: mirrors in order, then its registry.

        Raises `SpecError` for invalid settings, and `UndecidedError` for a blocked registry.
        """
        rule = self._find_rule(reference)
        if rule is None:
            return (reference,)
        if rule.blocked_by:
            raise UndecidedError(f"{reference.name}: {rule.blocked_by} blocks it")
        rest = rule.strip_prefix(reference.name) or ""
        named = (
            _renamed_reference(f"{mirror.location}{rest}", reference)
            for mirror in rule.mirrors
            if (mirror.serves_digests if reference.digest else mirror.serves_tags)
        )
        origin = _renamed_reference(f"{rule.location}{rest}", reference) or reference
        return (*(place for place in named if place is not None and place != origin), origin)

    def _find_rule(self, reference: Reference) -> _Rule | None:
        with self._lock:
            if self._rules is None:
                self._rules = list(self._containers_rules())
            fitting = [
                rule for rule in self._rules if rule.strip_prefix(reference.name) is not None
            ]
            if fitting:
                return max(fitting, key=lambda rule: len(rule.prefix))
            host = reference.host
            if host not in self._hosts:
                self._hosts[host] = self._containerd_rule(host) or self._docker_rule(host)
            return self._hosts[host]

    def _config_home(self) -> Path:
        home = self.environment.get("HOME") or "/"
        return Path(self.environment.get("XDG_CONFIG_HOME") or Path(home) / ".config")

    # podman and skopeo

    def _containers_rules(self) -> Iterator[_Rule]:
        system, user = self.root / "etc/containers", self._config_home() / "containers"
        if named := self.environment.get("CONTAINERS_REGISTRIES_CONF"):
            files = [Path(named)]
        else:
            own = user / "registries.conf"
            files = [own if own.is_file() else system / "registries.conf"]
            for folder in (system, user):
                files += sorted((folder / "registries.conf.d").glob("*.conf"))
        rules: dict[str, _Rule] = {}
        for file in files:
            # A later file replaces an earlier one's settings for the same prefix.
            rules |= {rule.prefix: rule for rule in _registry_rules(file)}
        yield from rules.values()

    # containerd

    def _containerd_rule(self, host: str) -> _Rule | None:
        places = (self._config_home() / "containerd/certs.d", self.root / "etc/containerd/certs.d")
        for folder in places:
            for name in (host, host.replace(":", "_") + "_" if ":" in host else host, "_default"):
                file = folder / name / "hosts.toml"
                if (held := _read_toml(file)) is not None:
                    return self._parse_hosts_file(file, host, *held)
        return None

    def _parse_hosts_file(
        self, file: Path, host: str, document: Mapping[str, Any], text: str
    ) -> _Rule:
        hosts = document.get("host", {})
        if not isinstance(hosts, dict):
            raise _spec_error(file, text, "host", "`host` is not a table")
        mirrors = []
        for url, settings in hosts.items():
            if not isinstance(settings, dict):
                raise _spec_error(file, text, url, f"the host {url} is not a table")
            able = settings.get("capabilities", ["pull", "resolve"])
            if not isinstance(able, list):
                raise _spec_error(file, text, "capabilities", "`capabilities` is not a list")
            location = self._parse_location(
                file, url, text, is_whole=settings.get("override_path") is True
            )
            if location is not None and "pull" in able:
                mirrors.append(_Mirror(location, serves_tags="resolve" in able))
                named = settings.get("ca")
                named = named if isinstance(named, list) else [named]
                if paths := tuple(file.parent / name for name in named if isinstance(name, str)):
                    self.authorities[location.partition("/")[0]] = paths
        origin = None
        if isinstance(server := document.get("server"), str):
            origin = self._parse_location(file, server, text)
        return _Rule(host, origin or host, tuple(mirrors))

    # Docker

    def _docker_rule(self, host: str) -> _Rule | None:
        if host != DOCKER_HUB:
            return None
        for file in (
            self._config_home() / "docker/daemon.json",
            self.root / "etc/docker/daemon.json",
        ):
            text = _read_text(file)
            if text is None:
                continue
            try:
                document = parse_json(text) if text.strip() else {}
            except JSONDecodeError as error:
                raise SpecError([Problem("it is not JSON", str(file), error.lineno)]) from None
            named = document.get("registry-mirrors") if isinstance(document, dict) else None
            if not named:
                continue
            if not isinstance(named, list) or not all(isinstance(url, str) for url in named):
                raise _spec_error(
                    file, text, "registry-mirrors", "`registry-mirrors` is not a list"
                )
            locations = [self._parse_location(file, url, text) for url in named]
            return _Rule(host, host, tuple(_Mirror(place) for place in locations if place))
        return None

    def _parse_location(
        self, file: Path, url: str, text: str, *, is_whole: bool = False
    ) -> str | None:
        """Return host and repository prefix of a mirror's URL; None if it is skipped."""
        try:
            address = parse(url if "://" in url else f"https://{url}")
        except UndecidedError:
            raise _spec_error(file, text, url, "the URL of the mirror is invalid") from None
        path = address.target.rstrip("/")
        if address.host in _HUB and not path.removeprefix(_ROOT):
            return DOCKER_HUB
        if path.startswith(f"{_ROOT}/") and is_whole:
            path = path.removeprefix(_ROOT)
        elif path in ("", _ROOT):
            path = ""
        else:
            self.note(f"{file}: {address.authority} is skipped: its API is not at {_ROOT}")
            return None
        is_plain = bool({address.authority, address.host} & {*self.plain_http})
        if address.scheme == "http" and not (address.is_loopback or is_plain):
            self.note(
                f"{file}: {address.authority} is skipped: it has no TLS; name it in "
                "BUILDMATRIX_PLAIN_HTTP to use it"
            )
            return None
        return f"{address.authority}{path}"


def _registry_rules(file: Path) -> Iterator[_Rule]:
    held = _read_toml(file)
    if held is None:
        return
    document, text = held
    tables = document.get("registry", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise _spec_error(
            file, text, "registry", "`registry` is not a list of tables: version 1 is not supported"
        )
    for number, table in enumerate(tables):
        line = _line_of(text, r"\[\[registry\]\]", number)
        prefix, location = table.get("prefix"), table.get("location")
        if not isinstance(prefix or location, str) or not isinstance(location or prefix, str):
            raise SpecError([Problem("a registry has no `location`", str(file), line)])
        # A prefix with `*.` has no single location.
        blocked = str(file) if table.get("blocked") is True else ""
        only_digests = table.get("mirror-by-digest-only") is True
        mirrors = table.get("mirror", [])
        if not isinstance(mirrors, list):
            raise SpecError([Problem("`mirror` is not a list of tables", str(file), line)])
        yield _Rule(
            (prefix or location).rstrip("/"),
            (location or prefix).rstrip("/"),
            tuple(_parse_mirror(file, line, mirror, only_digests) for mirror in mirrors),
            blocked,
        )


def _parse_mirror(file: Path, line: int | None, table: object, only_digests: bool) -> _Mirror:
    location = table.get("location") if isinstance(table, dict) else None
    if not isinstance(table, dict) or not isinstance(location, str) or not location:
        raise SpecError([Problem("a mirror has no `location`", str(file), line)])
    takes = table.get("pull-from-mirror", "digest-only" if only_digests else "all")
    return _Mirror(location.rstrip("/"), takes in ("all", "tag-only"), takes != "tag-only")


def _renamed_reference(name: str, reference: Reference) -> Reference | None:
    """Return the image under another name; None if the name is invalid."""
    if name.startswith("*."):
        return None
    try:
        place = Reference.parse(name)
    except UndecidedError:
        return None
    return Reference(place.host, place.repository, reference.tag, reference.digest)


def _read_toml(file: Path) -> tuple[Mapping[str, Any], str] | None:
    """Return a parsed TOML file and its text; None if there is no such file."""
    text = _read_text(file)
    if text is None:
        return None
    try:
        return toml.loads(text), text
    except toml.TomlError as error:
        raise SpecError([Problem(error.msg, str(file), error.lineno, error.colno)]) from None


def _read_text(file: Path) -> str | None:
    try:
        data = read_at_most(file, _MAX_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UndecidedError(f"{file} cannot be read: {error.strerror}") from None
    if len(data) > _MAX_FILE:
        raise UndecidedError(f"{file} has more than {_MAX_FILE >> 20} MiB")
    return data.decode("utf-8", "replace")


def _spec_error(file: Path, text: str, near: str, message: str) -> SpecError:
    line = _line_of(text, re.escape(near), 0)
    return SpecError([Problem(printable(message), str(file), line)])


def _line_of(text: str, pattern: str, number: int) -> int | None:
    """Return the line of match `number`, counted from 0."""
    match = next(islice(re.finditer(pattern, text), number, None), None)
    return text.count("\n", 0, match.start()) + 1 if match is not None else None
