"""Where this machine's packages are: what uv and pip were told, read from the same places.

uv resolves, so its settings are asked first: UV_INDEX, UV_EXTRA_INDEX_URL, UV_DEFAULT_INDEX,
UV_INDEX_URL, then `uv.toml` of the user and of the system
(https://docs.astral.sh/uv/concepts/configuration-files/). Where uv was told nothing, pip's count:
PIP_INDEX_URL and PIP_EXTRA_INDEX_URL, PIP_CONFIG_FILE, then `pip.conf` of the environment, the user
and the system (https://pip.pypa.io/en/stable/topics/configuration/). Files of a project are not
asked: a project says its indexes in `buildmatrix.toml`.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buildmatrix.errors import UndecidedError
from buildmatrix.index.addresses import Address, parse

PYPI = "https://pypi.org/simple/"

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Index:
    """One index of the configuration; the URL may hold credentials."""

    url: str
    #: The name that uv knows it by.
    name: str | None = None
    #: Only for packages that are pinned to it.
    explicit: bool = False

    def address(self) -> Address | None:
        """Its address on the network; None for a folder, or for what is no URL."""
        try:
            return parse(self.url)
        except UndecidedError:
            return None

    def __repr__(self) -> str:
        return f"Index(name={self.name!r})"


def default_indexes(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The URLs of the indexes that an installer on this machine asks, the first one first.

    The URLs are as configured, and may hold credentials: show them through `text.shown`.
    """
    found = configured(os.environ if environment is None else environment)
    urls = [index.url for index in found if not index.explicit]
    return tuple(dict.fromkeys(urls))


def configured(environment: Mapping[str, str]) -> tuple[Index, ...]:
    """All indexes of this machine, those included that are asked for pinned packages only."""
    return _uv(environment) or _pip(environment) or (Index(PYPI),)


def _uv(environment: Mapping[str, str]) -> tuple[Index, ...]:
    extra = [
        _named(word)
        for variable in ("UV_INDEX", "UV_EXTRA_INDEX_URL")
        for word in environment.get(variable, "").split()
    ]
    default = [
        _named(value)
        for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")
        if (value := environment.get(variable, "").strip())
    ]
    for settings in _uv_settings(environment):
        more, last = _of_uv_settings(settings)
        extra += more
        default += last
    if not extra and not default:
        return ()
    return (*extra, *(default[:1] or [Index(PYPI)]))


def _named(word: str) -> Index:
    """An index as uv takes it: `URL` or `NAME=URL`."""
    match = _NAMED.fullmatch(word)
    return Index(match[2], match[1]) if match else Index(word)


def _uv_settings(environment: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    if environment.get("UV_NO_CONFIG", "").lower() not in ("", "0", "false"):
        return
    named = environment.get("UV_CONFIG_FILE")
    if named:
        paths = [Path(named)]
    else:
        system = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
        paths = [
            _config_home(environment) / "uv" / "uv.toml",
            *(Path(folder) / "uv" / "uv.toml" for folder in system.split(os.pathsep) if folder),
            Path("/etc/uv/uv.toml"),
        ]
    for path in paths:
        try:
            yield tomllib.loads(path.read_text(encoding="utf-8"))
        # What is wrong with its settings is for uv to say.
        except (OSError, ValueError):
            continue


def _of_uv_settings(settings: dict[str, Any]) -> tuple[list[Index], list[Index]]:
    """The additional and the default indexes of one `uv.toml`."""
    extra: list[Index] = []
    default: list[Index] = []
    entries = settings.get("index")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("url"), str):
            name = entry.get("name")
            index = Index(
                entry["url"],
                name if isinstance(name, str) else None,
                explicit=entry.get("explicit") is True,
            )
            (default if entry.get("default") is True else extra).append(index)
    pip = settings.get("pip")
    for table in (settings, pip if isinstance(pip, dict) else {}):
        urls = table.get("extra-index-url")
        extra += (
            [Index(url) for url in urls if isinstance(url, str)] if isinstance(urls, list) else []
        )
        if isinstance(table.get("index-url"), str):
            default.append(Index(table["index-url"]))
    return extra, default


def _pip(environment: Mapping[str, str]) -> tuple[Index, ...]:
    settings: dict[str, str] = {}
    for path in _pip_files(environment):
        settings |= _of_pip_file(path)
    for key in ("index-url", "extra-index-url"):
        value = environment.get("PIP_" + key.upper().replace("-", "_"), "").strip()
        if value:
            settings[key] = value
    if not settings:
        return ()
    urls = [settings.get("index-url", PYPI), *settings.get("extra-index-url", "").split()]
    return tuple(Index(url) for url in urls)


def _pip_files(environment: Mapping[str, str]) -> Iterator[Path]:
    """The files that pip reads, the one that wins last."""
    named = environment.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    system = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    for folder in system.split(os.pathsep):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    yield _home(environment) / ".pip" / "pip.conf"
    yield _config_home(environment) / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if named:
        yield Path(named)


def _of_pip_file(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (OSError, ValueError, configparser.Error):
        return {}
    found: dict[str, str] = {}
    for section in ("global", "install"):
        for key in ("index-url", "extra-index-url"):
            for spelling in (key, key.replace("-", "_")):
                value = parser.get(section, spelling, fallback="").strip()
                if value:
                    found[key] = value
    return found


def _home(environment: Mapping[str, str]) -> Path:
    home = environment.get("HOME")
    if home:
        return Path(home)
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def _config_home(environment: Mapping[str, str]) -> Path:
    named = environment.get("XDG_CONFIG_HOME", "")
    return Path(named) if named.startswith("/") else _home(environment) / ".config"
