"""Cached resolutions of the last minutes, and the state of this machine that they depend on."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from buildmatrix.images.store.cache import DAY, Cache
from buildmatrix.net.http.machine_indexes import local_path, pip_settings_for_uv, places, uv_files

# State of this machine: settings and files that affect uv's answers. Without it, a cached answer
# would miss a wheel that was added to a folder of `--find-links`.


#: Maximum files to check of a folder; larger folders are read again in every run.
MOST_STAMPS = 50_000
#: An index has a folder for each project, with its files or beside them.
_DEEPEST = 2
#: Differs from run to run.
_RUN = secrets.token_hex(16)


def local_state(
    environment: Mapping[str, str],
    project: Mapping[str, object],
    options: Sequence[str],
    addresses: Iterable[str],
) -> object:
    """Return a value for JSON that changes when the state does.

    Args:
        environment: of this process.
        project: the settings of uv in the project.
        options: index options of the requirements files.
        addresses: of files in requirements, and of a target's indexes.
    """
    forwarded = pip_settings_for_uv(environment, project, options)
    locations = places({**environment, **forwarded.variables}, project, options)
    return [
        {name: value for name, value in environment.items() if name.startswith("UV_")},
        [*forwarded.variables.items()],
        forwarded.arguments,
        [[str(path), _text(path)] for path in uv_files(environment)],
        [[place, _state(place, 0)] for place in locations.find_links],
        [[place, _state(place, _DEEPEST)] for place in (*locations.indexes, *addresses)],
    ]


def _text(path: Path) -> str | None:
    with suppress(OSError, ValueError):
        return path.read_text(encoding="utf-8")
    return None


def _state(place: str, deep: int) -> object:
    """Return stamps of a file, or of the files in a folder; None if remote or missing."""
    path = local_path(place)
    if path is None:
        return None
    stamps = []
    for stamp in _stamps(path, deep):
        stamps.append(stamp)
        if len(stamps) > MOST_STAMPS:
            return _RUN
    return sorted(stamps)


def _stamps(path: Path, deep: int) -> Iterator[tuple[str, int, int, int, int]]:
    try:
        if not path.is_dir():
            yield _stamp(os.fspath(path), path.stat())
            return
        entries = os.scandir(path)
    except OSError:
        return
    with entries:
        for entry in entries:
            with suppress(OSError):
                if not entry.is_dir():
                    yield _stamp(entry.path, entry.stat())
                elif deep:
                    yield from _stamps(Path(entry.path), deep - 1)


def _stamp(path: str, status: os.stat_result) -> tuple[str, int, int, int, int]:
    return path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


# Cache, so that a repeated audit does not ask the index again.
#
# The key of an entry has all of its inputs. It is used for as long as PyPI allows for its pages
# (`Cache-Control: max-age=600`), as in uv's own cache; offline, for any age.


#: Seconds.
YOUNG = 600.0
#: Maximum age in seconds, even offline.
_OLD = 30 * DAY
#: Bytes of all entries together; the largest real ones have some 2 MB.
_LIMIT = 256 << 20
#: An address with a query: a token or a signature, with which anybody can get the file.
_SIGNED = re.compile(rb"://[^\s\"'\\]*\?")


class Recent:
    """Cached resolutions; keys include all inputs."""

    def __init__(self, cache: Cache | None = None, *, offline: bool = False) -> None:
        self._store = (cache or Cache(None)).store("resolved", "2", limit=_LIMIT, age=_OLD)
        self._within = _OLD if offline else YOUNG

    def get(self, key: str) -> bytes | None:
        """Return the entry of `key`, if it is young enough."""
        return self._store.get(key, self._within)

    def put(self, key: str, body: bytes) -> None:
        """Store `body`, without signatures of addresses."""
        if not _SIGNED.search(body):
            self._store.put(key, body)
