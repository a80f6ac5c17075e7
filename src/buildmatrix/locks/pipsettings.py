"""The settings of pip on this machine that say where packages are, read as pip reads them.

The only place that does. Many machines are configured for pip alone: where uv has no settings,
these settings count for the uv that resolves and for everything that asks an index
(`locks.machine_indexes`). Else names of a private index would be looked for on the public one.

Files, variables and their order: https://pip.pypa.io/en/stable/topics/configuration/, and
`pip/_internal/configuration.py` and `pip/_internal/cli/parser.py` of pip 23.2.1 (read 2026-11).
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: Sections that count for what is installed, the one that wins last.
_SECTIONS = ("global", "install")
_TRUE = ("y", "yes", "t", "true", "on", "1")


@dataclass(frozen=True, slots=True)
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

    def __repr__(self) -> str:
        return "PipSettings()"


def pip_settings(environment: Mapping[str, str]) -> PipSettings:
    """The settings of pip in an environment."""
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
    """The files that pip reads, the one that wins last."""
    named = environment.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return
    system = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    for folder in system.split(os.pathsep):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    # A file that is named replaces those of the user, where it is there.
    if not (named and Path(named).exists()):
        yield home(environment) / ".pip" / "pip.conf"
        yield config_home(environment) / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if named:
        yield Path(named)


def _values_in(path: Path) -> dict[tuple[str, str], str]:
    """(Section, key) -> value. Raises ValueError and `configparser.Error`."""
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
    """The user's home folder."""
    named = environment.get("HOME")
    if named:
        return Path(named)
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def config_home(environment: Mapping[str, str]) -> Path:
    """Where the user's settings are (the XDG base directory specification)."""
    named = environment.get("XDG_CONFIG_HOME", "")
    return Path(named) if named.startswith("/") else home(environment) / ".config"
