"""Package indexes of this machine: the settings of uv and pip, read from the same places.

uv resolves, so its settings come first: UV_INDEX, UV_EXTRA_INDEX_URL, UV_DEFAULT_INDEX,
UV_INDEX_URL, UV_FIND_LINKS, then `uv.toml` of the user and of the system
(https://docs.astral.sh/uv/concepts/configuration-files/). If uv has no index configured, pip's
settings apply, for uv itself too: `pip_settings_for_uv` passes them on. Many machines are
configured for pip alone, and names of a private index must not be looked up on the public one.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from buildmatrix.base import toml
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.text import PYPI
from buildmatrix.base.toml import mapping, string, strings, tables
from buildmatrix.net.addresses import Trust

# pip. Files, variables and their order: https://pip.pypa.io/en/stable/topics/configuration/, and
# `pip/_internal/configuration.py` and `pip/_internal/cli/parser.py` of pip 23.2.1 (read 2026-11).


#: Sections that count for what is installed, the one that wins last.
_SECTIONS = ("global", "install")
_TRUE = ("y", "yes", "t", "true", "on", "1")


@dataclass(frozen=True, slots=True, repr=False)
class PipSettings:
    """Settings of pip; empty where there are none. URLs may hold credentials."""

    index_url: str = ""
    extra_index_urls: tuple[str, ...] = ()
    #: Folders, files and URLs, as written.
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    #: `HOST` or `HOST:PORT`.
    trusted_hosts: tuple[str, ...] = ()
    #: File or folder of certificates.
    certificates: str = ""
    #: What is wrong with settings files; pip itself refuses to work with them.
    unread: tuple[str, ...] = ()


def pip_settings(environment: Mapping[str, str]) -> PipSettings:
    """Read the settings of pip in an environment."""
    values: dict[tuple[str, str], str] = {}
    unread: list[str] = []
    for path in _files(environment):
        try:
            values |= _values_in(path)
        except (ValueError, configparser.Error):
            unread.append(f"{path} is not a valid settings file of pip")
    settings = {key: value for section in _SECTIONS for (origin, key), value in values.items()
                if origin == section and value}  # fmt: skip
    for name, value in environment.items():
        if name.startswith("PIP_") and value.strip():
            settings[_key(name.removeprefix("PIP_"))] = value.strip()
    return PipSettings(
        index_url=settings.get("index-url") or settings.get("pypi-url", ""),
        extra_index_urls=tuple(settings.get("extra-index-url", "").split()),
        find_links=tuple(settings.get("find-links", "").split()),
        no_index=settings.get("no-index", "").lower() in _TRUE,
        trusted_hosts=tuple(settings.get("trusted-host", "").split()),
        certificates=settings.get("cert", ""),
        unread=tuple(unread),
    )


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files that pip reads, the one that wins last."""
    named = environment.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return
    system = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    for folder in system.split(os.pathsep):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    # An existing file in PIP_CONFIG_FILE replaces those of the user.
    if not (named and Path(named).exists()):
        yield home(environment) / ".pip" / "pip.conf"
        yield config_home(environment) / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if named:
        yield Path(named)


def _values_in(path: Path) -> dict[tuple[str, str], str]:
    """Return (section, key) → value. Raises ValueError and `configparser.Error`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return {}  # as pip does
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    return {
        (section, _key(name)): value.strip()
        for section in parser.sections()
        for name, value in parser.items(section)
    }


def _key(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def home(environment: Mapping[str, str]) -> Path:
    """Return the user's home folder."""
    named = environment.get("HOME")
    if named:
        return Path(named)
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def config_home(environment: Mapping[str, str]) -> Path:
    """Return the folder of the user's settings (the XDG base directory specification)."""
    named = environment.get("XDG_CONFIG_HOME", "")
    return Path(named) if named.startswith("/") else home(environment) / ".config"


_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=(.+)", re.DOTALL)


class Index(Struct, frozen=True):
    """One index of the configuration; the URL may hold credentials."""

    url: str
    #: Name in uv's settings.
    name: str | None = None
    #: Only for packages that are pinned to it.
    explicit: bool = False

    def __repr__(self) -> str:
        return f"Index(name={self.name!r})"


def default_indexes(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the URLs of the indexes that an installer on this machine asks, the first one first.

    The URLs are as configured, and may hold credentials: show them through `text.shown`.
    """
    indexes = configured(os.environ if environment is None else environment)
    urls = [index.url for index in indexes if not index.explicit]
    return tuple(dict.fromkeys(urls))


def configured(environment: Mapping[str, str]) -> tuple[Index, ...]:
    """Return all indexes of this machine, including those for pinned packages only."""
    uv = _uv(environment)
    if uv.has_indexes:
        return uv.indexes
    return (*uv.extra, *_pip_indexes(pip_settings(environment)))


def servers(environment: Mapping[str, str]) -> tuple[Index, ...]:
    """Return all servers in this machine's settings that may need a password."""
    uv = _uv(environment)
    links = uv.find_links or ([] if uv.has_indexes else pip_settings(environment).find_links)
    return (*configured(environment), *map(Index, links))


def trusted_hosts(environment: Mapping[str, str]) -> frozenset[str]:
    """Return `HOST` or `HOST:PORT` of servers with unchecked certificates; `*` for all."""
    named = environment.get("UV_INSECURE_HOST", "").split()
    return frozenset(named or pip_settings(environment).trusted_hosts)


def configured_trust() -> Trust:
    """Return the certificates that this machine's package settings trust."""
    certificates = pip_settings(os.environ).certificates
    return Trust(trusted_hosts(os.environ), ("pip's setting `cert`", certificates))


@dataclass(frozen=True, slots=True, repr=False)
class Places:
    """Sources of packages: addresses, with credentials, and paths."""

    find_links: tuple[str, ...]
    indexes: tuple[str, ...]


def places(
    environment: Mapping[str, str], project: Mapping[str, object], options: Sequence[str]
) -> Places:
    """Return all places where uv may look for packages, with these settings and options."""
    settings = _uv(environment)
    settings.add(project)
    for option in options:
        name, _, value = option.partition(" ")
        if name == "--find-links":
            settings.find_links.append(value.strip())
        elif value:
            settings.extra.append(Index(value.strip()))
    return Places(
        tuple(settings.find_links),
        tuple(index.url for index in (*settings.extra, *settings.default)),
    )


# uv


class _UvIndexes(Struct):
    """Package sources in the settings of uv."""

    extra: list[Index] = msgspec.field(default_factory=list)
    default: list[Index] = msgspec.field(default_factory=list)
    find_links: list[str] = msgspec.field(default_factory=list)
    no_index: bool = False

    @property
    def has_indexes(self) -> bool:
        """True if a package that is pinned to no index can be looked up."""
        return (
            self.no_index or bool(self.default) or any(not index.explicit for index in self.extra)
        )

    @property
    def indexes(self) -> tuple[Index, ...]:
        return (*self.extra, *(self.default[:1] or [Index(PYPI)]))

    def add(self, settings: Mapping[str, object]) -> None:
        """Add the settings of one `uv.toml`, or one `[tool.uv]`."""
        for entry in tables(settings.get("index")):
            url, name = entry.get("url"), entry.get("name")
            if isinstance(url, str):
                named = name if isinstance(name, str) else None
                index = Index(url, named, explicit=entry.get("explicit") is True)
                (self.default if entry.get("default") is True else self.extra).append(index)
        for table in (settings, mapping(settings.get("pip"))):
            self.extra += map(Index, strings(table.get("extra-index-url")))
            if url := string(table.get("index-url")):
                self.default.append(Index(url))
            self.find_links += strings(table.get("find-links"))
            self.no_index |= table.get("no-index") is True


def _uv(environment: Mapping[str, str]) -> _UvIndexes:
    settings = _UvIndexes()
    for variable in ("UV_INDEX", "UV_EXTRA_INDEX_URL"):
        settings.extra += map(_parse_index, environment.get(variable, "").split())
    for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        if value := environment.get(variable, "").strip():
            settings.default.append(_parse_index(value))
    settings.find_links += filter(None, environment.get("UV_FIND_LINKS", "").split(","))
    for table in _uv_tables(environment):
        settings.add(table)
    return settings


def _uv_tables(environment: Mapping[str, str]) -> Iterator[Mapping[str, object]]:
    for path in uv_files(environment):
        try:
            yield toml.loads(path.read_text(encoding="utf-8"))
        # uv itself reports invalid settings.
        except (OSError, ValueError, RecursionError):
            continue


def names_python(environment: Mapping[str, str], project: Mapping[str, object]) -> bool:
    """Return True if settings of uv, of the `project` or of this machine, choose a Python."""
    tables = (project, *_uv_tables(environment))
    return any("python" in mapping(table.get("pip")) for table in tables)


def _parse_index(word: str) -> Index:
    """Parse an index in uv's syntax: `URL` or `NAME=URL`."""
    match = _NAMED.fullmatch(word)
    return Index(match[2], match[1]) if match else Index(word)


def uv_files(environment: Mapping[str, str]) -> Sequence[Path]:
    """Return the paths of `uv.toml` for the user and the system; they may be missing."""
    if environment.get("UV_NO_CONFIG", "").lower() not in ("", "0", "false"):
        return ()
    if named := environment.get("UV_CONFIG_FILE"):
        return (Path(named),)
    system = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    return (
        config_home(environment) / "uv" / "uv.toml",
        *(Path(folder) / "uv" / "uv.toml" for folder in system.split(os.pathsep) if folder),
        Path("/etc/uv/uv.toml"),
    )


# From pip to uv


@dataclass(frozen=True, slots=True, repr=False)
class ForUv:
    """Settings that only pip has, in uv's form; URLs may hold credentials."""

    variables: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


def pip_settings_for_uv(
    environment: Mapping[str, str], project: Mapping[str, object], options: Sequence[str] = ()
) -> ForUv:
    """Return pip's settings in uv's form.

    Args:
        environment: of this process.
        project: the settings of uv in the project, which win over pip's.
        options: those of the requirements files. `--index-url` and `--no-index` replace pip's
            indexes, as they do for pip.

    Raises `UndecidedError` for settings that uv cannot follow: without them, the result is not what
    this machine would install.
    """
    pip = pip_settings(environment)
    variables = _certificates(environment, pip)
    own, machine = _UvIndexes(), _uv(environment)
    own.add(project)
    if own.has_indexes or machine.has_indexes:
        return ForUv(variables)
    if pip.unread:
        raise UndecidedError(
            f"{pip.unread[0]}, so this machine's package index is unknown; fix the file, or set "
            "UV_DEFAULT_INDEX"
        )
    if pip.trusted_hosts and not environment.get("UV_INSECURE_HOST"):
        variables["UV_INSECURE_HOST"] = " ".join(pip.trusted_hosts)
    links = ",".join(_readable(pip.find_links))
    if links and not own.find_links and not machine.find_links:
        variables["UV_FIND_LINKS"] = links
    if {option.partition(" ")[0] for option in options} & {"--index-url", "--no-index"}:
        return ForUv(variables)
    if pip.no_index:
        return ForUv(variables, ("--no-index",))
    urls = [index.url for index in _pip_indexes(pip)]
    if urls != [PYPI]:
        *further, variables["UV_DEFAULT_INDEX"] = urls
        if further:
            # pip takes the best version of any index.
            variables["UV_INDEX"] = " ".join(further)
            if "index-strategy" not in project:
                variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return ForUv(variables)


def _certificates(environment: Mapping[str, str], pip: PipSettings) -> dict[str, str]:
    place = environment.get("REQUESTS_CA_BUNDLE") or pip.certificates
    if not place or environment.get("SSL_CERT_FILE") or environment.get("SSL_CERT_DIR"):
        return {}
    return {"SSL_CERT_DIR" if Path(place).is_dir() else "SSL_CERT_FILE": place}


def _pip_indexes(pip: PipSettings) -> tuple[Index, ...]:
    """Return pip's indexes in its order, or PyPI; as for pip, missing folders do not count."""
    if pip.no_index:
        return ()
    further = [url for url in pip.extra_index_urls if not _is_missing(url)]
    return tuple(Index(url) for url in (pip.index_url or PYPI, *further))


def _is_missing(place: str) -> bool:
    path = local_path(place)
    return path is not None and not path.exists()


def _readable(find_links: Iterable[str]) -> Iterator[str]:
    """Return pip's find-links in uv's form; as for pip, missing folders do not count."""
    for place in find_links:
        path = local_path(place)
        if path is None:
            yield place
        elif path.is_dir():
            # uv runs in another folder, and splits at commas.
            yield path.absolute().as_uri().replace(",", "%2C")
        elif path.exists():
            raise UndecidedError(
                f"pip's find-links has {place}, but uv reads only folders; put the "
                "packages into a folder"
            )


def local_path(place: str) -> Path | None:
    """Return the file or folder of an address; None for one on the network."""
    if "://" not in place and not place.startswith("file:"):
        return Path(place).expanduser()
    parts = urlsplit(place)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
