"""Files that COPY adds to an image: those of the context that are not ignored.

Modes are reduced as in git: 0755 if executable by the owner, else 0644. So the umask, ACLs or
archive of a checkout do not change the image, and its user can read files of root.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from buildmatrix.engines.oci.installation import InstalledFile
from buildmatrix.errors import Problem, SpecError, UndecidedError
from buildmatrix.oci.layers import LayerEntry
from buildmatrix.render.ignore import Ignored
from buildmatrix.trees.base import reason

_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """A file, folder or link in the copied source; `path` is empty for the source itself."""

    path: str
    kind: str
    place: Path
    mode: int = 0o755
    size: int = 0
    target: str = ""
    sha256: str = ""


class Context:
    """The folder of a specification, as sent to a builder."""

    def __init__(self, root: Path, ignored: Ignored) -> None:
        self._root = root
        self._ignored = ignored

    @cached_property
    def _real_root(self) -> Path:
        return self._root.resolve()

    def entries(self, source: str, subject: str) -> list[ContextEntry]:
        """Return the sorted entries of the file or folder `source`, with hashes of files.

        Raises SpecError about `subject` if the source is missing or outside of the context, and
        UndecidedError if it is unreadable.
        """
        place = self._root / source
        try:
            real = place.resolve(strict=True)
            path = real.relative_to(self._real_root).as_posix()
        except (OSError, ValueError, RuntimeError):
            raise self._missing(source, subject) from None
        try:
            entries = list(self._below(path if path != "." else "", "", real))
        except OSError as error:
            raise UndecidedError(
                f"{subject}: {error.filename or source} cannot be read: {reason(error)}"
            ) from error
        if not entries:
            raise self._missing(source, subject)
        return entries

    def _missing(self, source: str, subject: str) -> SpecError:
        message = f"{subject}: `{source}` of `copy` is not there, or `.dockerignore` leaves it out"
        return SpecError([Problem(message, ".dockerignore")])

    def _below(self, path: str, inside: str, place: Path) -> Iterator[ContextEntry]:
        """Yield entries in a folder: `path` is relative to the context, `inside` to the source."""
        is_ignored = bool(path) and self._ignored(path)
        status = place.lstat()
        if stat.S_ISDIR(status.st_mode):
            below: list[ContextEntry] = []
            if not is_ignored or self._ignored.has_exceptions:
                with os.scandir(place) as listed:
                    names = sorted(entry.name for entry in listed)
                for name in names:
                    below += self._below(
                        f"{path}/{name}".lstrip("/"), f"{inside}/{name}".lstrip("/"), place / name
                    )
            if below or not is_ignored:
                yield ContextEntry(inside, "folder", place)
                yield from below
            return
        if is_ignored:
            return
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(place)  # noqa: PTH115 (Path would tidy it)
            yield ContextEntry(inside, "symlink", place, 0o777, target=target)
        elif stat.S_ISREG(status.st_mode):
            mode = 0o755 if status.st_mode & 0o100 else 0o644
            digest, size = _digest(place)
            yield ContextEntry(inside, "file", place, mode, size, sha256=digest)
        else:
            raise UndecidedError(f"{path} is neither file, folder nor link, and cannot be copied")


def copied(entry: ContextEntry, path: str) -> InstalledFile:
    """Return the layer's file for an entry with the destination `path`."""
    new = LayerEntry(path, entry.kind, entry.mode, entry.size, entry.target)  # type: ignore[arg-type]
    return InstalledFile(new, _content(entry) if entry.kind == "file" else tuple)


def _content(entry: ContextEntry) -> Callable[[], Iterator[bytes]]:
    def read() -> Iterator[bytes]:
        hasher = hashlib.sha256()
        try:
            with entry.place.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    hasher.update(chunk)
                    yield chunk
        except OSError as error:
            raise UndecidedError(f"{entry.place} cannot be read: {reason(error)}") from error
        if hasher.hexdigest() != entry.sha256:
            raise UndecidedError(f"{entry.place} changed while it was copied; build again")

    return read


def _digest(path: Path) -> tuple[str, int]:
    hasher = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
            size += len(chunk)
    return hasher.hexdigest(), size
