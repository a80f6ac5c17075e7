"""Where else an image may be had: the mirrors in the settings of this machine's engines.

The first settings that know a registry count, and the others do not: podman's and skopeo's
(containers-registries.conf(5), version 2, with its drop-in folders), containerd's (`hosts.toml`,
https://github.com/containerd/containerd/blob/main/docs/hosts.md), and Docker's `registry-mirrors`,
which are for Docker Hub. Read when the first image of a registry is, and once.

What weakens TLS there (`insecure`, `skip_verify`) is not taken over, and a mirror over plain HTTP
is passed over unless it is on this machine or named in BUILDMATRIX_PLAIN_HTTP. Names without a
registry are Docker Hub's: `unqualified-search-registries` and aliases guess, and are not read.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from buildmatrix import toml
from buildmatrix.errors import Problem, SpecError, UndecidedError
from buildmatrix.files import read_at_most
from buildmatrix.http.addresses import HttpAddress, parse
from buildmatrix.registry.reference import DOCKER_HUB, Reference
from buildmatrix.strict_json import parse_json
from buildmatrix.text import printable

#: Bytes of one file of settings.
_LARGEST_FILE = 1 << 20
#: Names that mean Docker Hub where settings have an address.
_HUB = frozenset({DOCKER_HUB, "registry-1.docker.io", "index.docker.io"})
#: Where an API begins; what stands behind it goes before the name of a repository.
_ROOT = "/v2"


@dataclass(frozen=True, slots=True)
class _Mirror:
    """One place that a registry may be replaced by: a host, and what goes before repositories."""

    #: `mirror.example.com/hub`
    location: str
    by_tag: bool = True
    by_digest: bool = True


@dataclass(frozen=True, slots=True)
class _Rule:
    """What settings say of the names that begin so."""

    #: `docker.io/library`; `*.example.com` stands for each host below it.
    prefix: str
    #: What stands in place of the prefix at the registry itself.
    location: str
    mirrors: tuple[_Mirror, ...] = ()
    #: The file that has it blocked; empty for none.
    blocked: str = ""

    def rest(self, name: str) -> str | None:
        """What follows the prefix in `HOST/NAME`; None for a name that the rule is not about."""
        if self.prefix.startswith("*."):
            host, slash, path = name.partition("/")
            return slash + path if host.endswith(self.prefix[1:]) else None
        if name == self.prefix or name.startswith(f"{self.prefix}/"):
            return name[len(self.prefix) :]
        return None


@dataclass(frozen=True, slots=True)
class Places:
    """Where an image can be had: mirrors in their order, and its registry, the last to be asked."""

    mirrors: tuple[Reference, ...]
    origin: Reference


@dataclass(slots=True)
class Mirrors:
    """The mirrors of this machine; for all threads.

    Args:
        environment: HOME, XDG_CONFIG_HOME and CONTAINERS_REGISTRIES_CONF are looked at.
        note: told what is passed over.
        root: the folder that `/etc` is in.
    """

    environment: Mapping[str, str]
    root: Path = Path("/")
    note: Callable[[str], None] = lambda _: None
    #: Files of authorities for hosts, as `hosts.toml` names them; filled as mirrors are found.
    authorities: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    plain_http: Collection[str] = ()
    _rules: list[_Rule] | None = None
    _hosts: dict[str, _Rule | None] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def places(self, reference: Reference) -> Places:
        """Where to ask for an image. Raises `SpecError` for settings that cannot be read.

        Raises `UndecidedError` for a registry that they block.
        """
        rule = self._rule(reference)
        if rule is None:
            return Places((), reference)
        if rule.blocked:
            raise UndecidedError(f"{reference.name}: {rule.blocked} blocks it")
        rest = rule.rest(reference.name) or ""
        named = (
            _placed(f"{mirror.location}{rest}", reference)
            for mirror in rule.mirrors
            if (mirror.by_digest if reference.digest else mirror.by_tag)
        )
        origin = _placed(f"{rule.location}{rest}", reference) or reference
        mirrors = tuple(place for place in named if place is not None and place != origin)
        return Places(mirrors, origin)

    def _rule(self, reference: Reference) -> _Rule | None:
        with self._lock:
            if self._rules is None:
                self._rules = list(self._containers())
            fitting = [rule for rule in self._rules if rule.rest(reference.name) is not None]
            if fitting:
                return max(fitting, key=lambda rule: len(rule.prefix))
            host = reference.host
            if host not in self._hosts:
                self._hosts[host] = self._containerd(host) or self._docker(host)
            return self._hosts[host]

    def _configuration(self) -> Path:
        home = self.environment.get("HOME") or "/"
        return Path(self.environment.get("XDG_CONFIG_HOME") or Path(home) / ".config")

    # podman and skopeo

    def _containers(self) -> Iterator[_Rule]:
        system, user = self.root / "etc/containers", self._configuration() / "containers"
        if named := self.environment.get("CONTAINERS_REGISTRIES_CONF"):
            files = [Path(named)]
        else:
            first = next((folder for folder in (user, system) if _is(folder)), system)
            files = [first / "registries.conf"]
            for folder in (system, user):
                files += sorted((folder / "registries.conf.d").glob("*.conf"))
        rules: dict[str, _Rule] = {}
        for file in files:
            # What a later file says of a prefix stands in place of what an earlier one says.
            rules |= {rule.prefix: rule for rule in _registries(file)}
        yield from rules.values()

    # containerd

    def _containerd(self, host: str) -> _Rule | None:
        places = (
            self._configuration() / "containerd/certs.d",
            self.root / "etc/containerd/certs.d",
        )
        for folder in places:
            for name in (host, host.replace(":", "_") + "_" if ":" in host else host, "_default"):
                file = folder / name / "hosts.toml"
                if (held := _document(file)) is not None:
                    return self._hosts_file(file, host, *held)
        return None

    def _hosts_file(self, file: Path, host: str, document: Mapping[str, Any], text: str) -> _Rule:
        mirrors = []
        for url, settings in _table(file, document, "host", text).items():
            if not isinstance(settings, dict):
                raise _wrong(file, text, url, f"the host {url} is no table")
            able = settings.get("capabilities", ["pull", "resolve"])
            if not isinstance(able, list):
                raise _wrong(file, text, "capabilities", "`capabilities` is no list")
            location = self._location(
                file, url, text, is_whole=settings.get("override_path") is True
            )
            if location is not None and "pull" in able:
                mirrors.append(_Mirror(location, by_tag="resolve" in able))
                self._trust(file, settings.get("ca"), location.partition("/")[0])
        origin = None
        if isinstance(server := document.get("server"), str):
            origin = self._location(file, server, text)
        return _Rule(host, origin or host, tuple(mirrors))

    def _trust(self, file: Path, authority: object, host: str) -> None:
        named = authority if isinstance(authority, list) else [authority]
        paths = tuple(file.parent / name for name in named if isinstance(name, str))
        if paths:
            self.authorities[host] = paths

    # Docker

    def _docker(self, host: str) -> _Rule | None:
        if host != DOCKER_HUB:
            return None
        for file in (
            self._configuration() / "docker/daemon.json",
            self.root / "etc/docker/daemon.json",
        ):
            text = _text(file)
            if text is None:
                continue
            try:
                document = parse_json(text) if text.strip() else {}
            except JSONDecodeError as error:
                raise SpecError([Problem("it is no JSON", str(file), error.lineno)]) from None
            named = document.get("registry-mirrors") if isinstance(document, dict) else None
            if not named:
                continue
            if not isinstance(named, list) or not all(isinstance(url, str) for url in named):
                raise _wrong(file, text, "registry-mirrors", "`registry-mirrors` is no list")
            locations = [self._location(file, url, text) for url in named]
            return _Rule(host, host, tuple(_Mirror(place) for place in locations if place))
        return None

    def _location(self, file: Path, url: str, text: str, *, is_whole: bool = False) -> str | None:
        """Host and beginning of repositories behind a URL; None for one that is passed over."""
        try:
            address = parse(url if "://" in url else f"https://{url}")
        except UndecidedError:
            raise _wrong(file, text, url, "the URL of a mirror is none") from None
        path = address.target.rstrip("/")
        if address.host in _HUB and not path.removeprefix(_ROOT):
            return DOCKER_HUB
        if path.startswith(f"{_ROOT}/") and is_whole:
            path = path.removeprefix(_ROOT)
        elif path in ("", _ROOT):
            path = ""
        else:
            self.note(f"{file}: {address.authority} is passed over: its API is not at {_ROOT}")
            return None
        if address.scheme == "http" and not self._may_be_plain(address):
            self.note(
                f"{file}: {address.authority} is passed over: it has no TLS; name it in "
                "BUILDMATRIX_PLAIN_HTTP to take it"
            )
            return None
        return f"{address.authority}{path}"

    def _may_be_plain(self, address: HttpAddress) -> bool:
        return address.is_loopback or bool({address.authority, address.host} & {*self.plain_http})


def _is(folder: Path) -> bool:
    return (folder / "registries.conf").is_file()


def _registries(file: Path) -> Iterator[_Rule]:
    held = _document(file)
    if held is None:
        return
    document, text = held
    tables = document.get("registry", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise _wrong(
            file, text, "registry", "`registry` is no list of tables: version 1 is not read"
        )
    for number, table in enumerate(tables):
        line = _line_of(text, r"\[\[registry\]\]", number)
        prefix, location = table.get("prefix"), table.get("location")
        if not isinstance(prefix or location, str) or not isinstance(location or prefix, str):
            raise SpecError([Problem("a registry has no `location`", str(file), line)])
        # Behind `*.` there is no one location.
        blocked = str(file) if table.get("blocked") is True else ""
        only_digests = table.get("mirror-by-digest-only") is True
        mirrors = table.get("mirror", [])
        if not isinstance(mirrors, list):
            raise SpecError([Problem("`mirror` is no list of tables", str(file), line)])
        yield _Rule(
            (prefix or location).rstrip("/"),
            (location or prefix).rstrip("/"),
            tuple(_registry_mirror(file, line, mirror, only_digests) for mirror in mirrors),
            blocked,
        )


def _registry_mirror(file: Path, line: int | None, table: object, only_digests: bool) -> _Mirror:
    location = table.get("location") if isinstance(table, dict) else None
    if not isinstance(table, dict) or not isinstance(location, str) or not location:
        raise SpecError([Problem("a mirror of it has no `location`", str(file), line)])
    takes = table.get("pull-from-mirror", "digest-only" if only_digests else "all")
    return _Mirror(location.rstrip("/"), takes in ("all", "tag-only"), takes != "tag-only")


def _placed(name: str, reference: Reference) -> Reference | None:
    """The same image under another name; None where that is no name."""
    if name.startswith("*."):
        return None
    try:
        place = Reference.parse(name)
    except UndecidedError:
        return None
    return Reference(place.host, place.repository, reference.tag, reference.digest)


def _document(file: Path) -> tuple[Mapping[str, Any], str] | None:
    """TOML and its text; None where there is no such file."""
    text = _text(file)
    if text is None:
        return None
    try:
        return toml.loads(text), text
    except toml.TomlError as error:
        raise SpecError([Problem(error.msg, str(file), error.lineno, error.colno)]) from None


def _text(file: Path) -> str | None:
    try:
        data = read_at_most(file, _LARGEST_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UndecidedError(f"{file} cannot be read: {error.strerror}") from None
    if len(data) > _LARGEST_FILE:
        raise UndecidedError(f"{file} has more than {_LARGEST_FILE >> 20} MiB")
    return data.decode("utf-8", "replace")


def _table(file: Path, document: Mapping[str, Any], key: str, text: str) -> Mapping[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise _wrong(file, text, key, f"`{key}` is no table")
    return value


def _wrong(file: Path, text: str, near: str, message: str) -> SpecError:
    line = _line_of(text, re.escape(near), 0)
    return SpecError([Problem(printable(message), str(file), line)])


def _line_of(text: str, pattern: str, number: int) -> int | None:
    """The line of the match that is the one with this number."""
    matches: Sequence[re.Match[str]] = list(re.finditer(pattern, text))
    if number >= len(matches):
        return None
    return text.count("\n", 0, matches[number].start()) + 1
