"""The journal: what was built from what, so that the next run does only what is missing.

One record per target. Its key is a digest of everything that goes into the image; a record with
another key says nothing. Records appear whole or not at all, so a run may be killed at any moment.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from buildmatrix.engines.disk import writing
from buildmatrix.errors import Problem, SpecError
from buildmatrix.inventory.writing import write_atomically
from buildmatrix.pipeline.state import TargetFiles
from buildmatrix.render.ignore import FOLDER, Ignored, rules

#: Part of every key: raised when the same inputs would give another image or inventory.
VERSION = "buildmatrix/journal/1"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One target that was built and scanned."""

    key: str
    #: Digests of the image's manifest and configuration: Docker names an image by either.
    digest: str
    config: str | None
    loaded: bool
    tags: tuple[str, ...]
    #: sha256 of the stored inventory.
    inventory: str
    #: Seconds that build and scan took.
    seconds: float
    #: Base images that the builder took, reference → digest, where it told.
    bases: Mapping[str, str] = {}
    #: Digests of smoke commands that this image passed.
    smoke: tuple[str, ...] = ()

    def is_at(self, present: Mapping[str, str]) -> bool:
        """Whether all tags lead to this image; `present` is what `Engine.present` says."""
        names = {self.digest, self.config or self.digest}
        return all(present.get(tag) in names for tag in self.tags)


def read(files: TargetFiles, key: str) -> Record | None:
    """The record of a target, if it is about `key` and its inventory is still the one it names."""
    try:
        record = msgspec.json.decode(files.record.read_bytes(), type=Record)
        if record.key != key or _sha256(files.inventory) != record.inventory:
            return None
    except (OSError, msgspec.MsgspecError):
        return None  # Never written, deleted, or written by another version: build again.
    return record


def write(files: TargetFiles, record: Record) -> None:
    """Store a record. Raises `BuildError` when the disk is full."""
    with writing(files.folder):
        write_atomically(files.record, msgspec.json.format(msgspec.json.encode(record), indent=1))


def forget(files: TargetFiles) -> None:
    """Drop a record: the next run builds the target again."""
    with writing(files.folder):
        files.record.unlink(missing_ok=True)


def inventory_digest(files: TargetFiles) -> str:
    """The digest that a record names the stored inventory by."""
    return _sha256(files.inventory)


class Digests:
    """Digests of files and folders, each read once however many targets use it.

    What the generated `.dockerignore` files keep out of the context does not count; `output` is
    the folder of generated files.
    """

    def __init__(self, root: Path, output: str = FOLDER) -> None:
        self._root = root
        self._ignored = Ignored(rules(root, output))
        self._known: dict[str, str] = {}

    def of(self, path: str) -> str:
        """Digest of a file, or of all files below a folder with names, modes and contents.

        Raises `SpecError` when it is not there: the image could not be built either.
        """
        if path not in self._known:
            try:
                self._known[path] = _tree_sha256(self._root, path, self._ignored)
            except OSError as error:
                raise SpecError(
                    [
                        Problem(
                            f"{error.strerror or error}: it is to be copied into the image",
                            str(Path(error.filename or path)),
                            hint="see `copy` in the specification",
                        )
                    ]
                ) from error
        return self._known[path]


def key(parts: Mapping[str, object]) -> str:
    """Digest of everything that goes into an image: values that JSON can hold."""
    text = json.dumps([VERSION, dict(parts)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tree_sha256(root: Path, path: str, ignored: Ignored) -> str:
    if (root / path).is_file():
        return _sha256(root / path)
    digest = hashlib.sha256()
    for name, kind, content in _entries(root, path, ignored):
        digest.update(f"{len(os.fsencode(name))} {kind} {len(content)} ".encode())
        digest.update(os.fsencode(name) + os.fsencode(content))
    return digest.hexdigest()


def _entries(root: Path, copied: str, ignored: Ignored) -> Iterator[tuple[str, str, str]]:
    """Every entry that the folder `copied` has in the context, in a fixed order.

    Relative path, kind with mode, content.
    """
    folder = root / copied
    for directory, folders, files in os.walk(folder, onerror=_raise):
        place = posixpath.join(copied, Path(directory).relative_to(folder).as_posix())
        left_out = {
            name
            for name in (*folders, *files)
            if ignored(posixpath.normpath(posixpath.join(place, name)))
        }
        present = sorted({*folders, *files} - left_out)
        folders[:] = sorted(set(folders) - (set() if ignored.has_exceptions else left_out))
        for name in present:
            path = Path(directory, name)
            relative = path.relative_to(folder).as_posix()
            mode = path.lstat().st_mode
            if path.is_symlink():
                yield relative, "link", str(path.readlink())
            elif path.is_dir():
                yield relative, f"folder {mode:o}", ""
            elif path.is_file():
                yield relative, f"file {mode:o}", _sha256(path)
            else:
                yield relative, f"special {mode:o}", ""


def _raise(error: OSError) -> None:
    raise error
